"""`/metrics` on an address of its own, so that it is never reachable where the API is."""

from typing import Any, Final

from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.connection import ClientConnection, ClientTimeouts
from huddle.wrapper.http.http1 import Head, HttpLimits
from huddle.wrapper.observability.metrics import CONTENT_TYPE, Metrics
from huddle.wrapper.routes import not_found

_CONNECTIONS_MAX: Final = 32


class MetricsService:
    """Implements the connections' `HttpService` for one route."""

    http_limits = HttpLimits(max_head_bytes=8_192, max_body_bytes=0)
    client_timeouts = ClientTimeouts()
    draining = False

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._open = 0

    def connected(self, connection: ClientConnection) -> bool:  # noqa: ARG002 - the interface
        """Count, up to a few."""
        self._open += 1
        return self._open <= _CONNECTIONS_MAX

    def disconnected(self, connection: ClientConnection) -> None:  # noqa: ARG002
        """A connection has closed."""
        self._open -= 1

    def buffer(self, delta: int) -> None:
        """Nothing is buffered here."""

    def admit(self, head: Head) -> object:
        """Let `GET /metrics` pass. Raises `RequestError` (404) for anything else."""
        if head.path != "/metrics" or head.method != "GET":
            raise not_found()
        return head

    def answer(self, connection: ClientConnection, admitted: object, body: bytes) -> Any:  # noqa: ARG002
        """Answer with the metrics in Prometheus' text format."""
        connection.respond(200, [("content-type", CONTENT_TYPE)], self._metrics.render())

    def refused(self, head: Head | None, refusal: RequestError) -> list[tuple[str, str]]:  # noqa: ARG002
        """Neither logged nor counted; no headers are added."""
        return []
