"""`/metrics` on an address of its own, so that it is never reachable where the API is."""

import asyncio
import time
from typing import Any, Final

from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.connection import ClientConnection, ClientTimeouts
from huddle.wrapper.http.http1 import Head, HttpLimits
from huddle.wrapper.http.ledger import Ledger
from huddle.wrapper.observability.metrics import CONTENT_TYPE, Metrics
from huddle.wrapper.routes import not_found

_OF_A_CLIENT_MAX: Final = 8
_CONNECTIONS_MAX: Final = 32
_TICK_S: Final = 1.0
_ANSWER_BYTES: Final = 32 * 1024 * 1024  # of all answers that wait for their reader


class MetricsService:
    """Implements the connections' `HttpService` for one route. A new connection takes the oldest one's place.

    Whoever holds connections without asking can so never keep a scraper out.
    """

    http_limits = HttpLimits(max_head_bytes=8_192, max_body_bytes=0)
    client_timeouts = ClientTimeouts(head_s=5, body_s=5, write_stall_s=10)
    draining = False

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.ledger = Ledger(_ANSWER_BYTES, _ANSWER_BYTES)
        self._open: dict[ClientConnection, object] = {}  # with the client's address, the oldest first

    def connected(self, connection: ClientConnection, peer: object) -> bool:
        """Let it in; close the client's oldest, or the oldest of all, when there are too many."""
        client = peer[0] if isinstance(peer, tuple) else peer  # a Unix socket's clients are one
        same = [other for other, address in self._open.items() if address == client]
        if len(same) >= _OF_A_CLIENT_MAX:
            self._evict(same[0])
        elif len(self._open) >= _CONNECTIONS_MAX:
            self._evict(next(iter(self._open)))
        self._open[connection] = client
        return True

    def disconnected(self, connection: ClientConnection) -> None:
        """A connection has closed."""
        self._open.pop(connection, None)

    def _evict(self, connection: ClientConnection) -> None:
        del self._open[connection]
        connection.abort()

    async def tick(self) -> None:
        """Enforce the timeouts, for ever."""
        while True:
            await asyncio.sleep(_TICK_S)
            for connection in tuple(self._open):
                connection.check(time.monotonic())

    def idle(self, connection: ClientConnection) -> None:
        """The connection waits for the next scrape."""

    def abandoned(self, admitted: object) -> None:
        """There are no bodies here to wait for."""

    def admit(self, connection: ClientConnection, head: Head) -> object:  # noqa: ARG002
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
