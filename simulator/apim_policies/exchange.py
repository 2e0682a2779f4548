"""One request on its way through a gateway, and what the steps of a policy may ask of the gateway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from simulator.apim_policies.counters import Counters
from simulator.apim_policies.gateway_config import Api, Operation, Product, Subscription
from simulator.apim_policies.messages import Request, Response
from simulator.apim_policies.pool import Backends


@dataclass(frozen=True)
class LastError:
    """`context.LastError`, with the words of Microsoft's page on error handling."""

    source: str
    reason: str
    message: str


class Failed(Exception):  # noqa: N818 - API Management's jump to on-error
    """The pipeline jumps to `on-error` with this answer in `context.Response`."""

    def __init__(self, status: int, error: LastError, *headers: tuple[str, str]) -> None:
        super().__init__(error.message)
        self.status = status
        self.error = error
        self.headers = headers


class Returned(Exception):  # noqa: N818 - what return-response does
    """A policy answered by itself: the pipeline ends at once, `outbound` included."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


class BackendFault(Exception):  # noqa: N818 - carries API Management's reason
    """A backend did not answer: `Timeout` or `BackendConnectionFailure`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Sender(Protocol):
    """The way to a backend. Raises `BackendFault`; returns as soon as an answer's head is there."""

    async def __call__(self, url: str, request: Request, timeout_s: float) -> Response:
        """Send a request to a whole URL."""


@dataclass(frozen=True)
class Metric:
    """One custom metric as it would reach Application Insights."""

    namespace: str
    name: str
    value: int
    dimensions: tuple[tuple[str, str], ...]


@dataclass
class Environment:
    """What a gateway's steps share."""

    counters: Counters
    backends: Backends
    send: Sender
    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    metrics: list[Metric] = field(default_factory=list)
    limits_estimate_streams: bool = False
    """Whether token limits estimate every stream, as their page says; else its usage counts where it is told."""


@dataclass
class Exchange:
    """`context`, as policies see it, and the books of the request. `ended` runs once, when its answer has."""

    request: Request
    request_id: UUID
    environment: Environment
    api: Api | None = None
    operation: Operation | None = None
    product: Product | None = None
    subscription: Subscription | None = None
    response: Response | None = None
    error: LastError | None = None
    target: str = ""
    backend_id: str = ""
    path: str = ""
    """The path below the backend's URL."""
    own_headers: list[tuple[str, str]] = field(default_factory=list)
    """Headers that limits and CORS add to whatever answer goes out."""
    watchers: list[Callable[[bytes], None]] = field(default_factory=list)
    ended: list[Callable[[], None]] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return self.environment.clock()


Step = Callable[[Exchange], Awaitable[None]]
