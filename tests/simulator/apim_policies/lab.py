"""A gateway of a real plan in the lab: a clock that the test turns, and backends that answer as it says."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from plan.azure.model import AzurePlan
from simulator.apim_policies.counters import Algorithm, Counters
from simulator.apim_policies.exchange import Environment, Metric
from simulator.apim_policies.from_plan import gateway_config_of
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.gateway_config import GatewayConfig, Subscription, SubscriptionScope
from simulator.apim_policies.messages import Headers, Request, Response
from simulator.apim_policies.pool import Backends
from tests.unit import builders

BACKEND_KEY = "backend-key-0123456789abcdef"
KEY = "0123456789abcdef0123456789abcdef"
OTHER_KEY = "fedcba9876543210fedcba9876543210"
ALL_ACCESS_KEY = "all-access-all-access-all-access"
API_KEY = "key-of-an-api-key-of-an-api-key-"
IDLE_KEY = "key-of-a-suspended-subscription-"
MODEL = "llama-3.2-3b"
START = 1_800_000_000.0  # 15 January 2027, 08:00 UTC
ORIGIN = "https://chat.example.com"
PRODUCTS: dict[str, Any] = {
    "developers": {
        "display_name": "Developers",
        "requests_per_minute": 5,
        "tokens_per_minute": 1_000,
        "token_quota": {"tokens": 3_000, "period": "daily"},
        "models": [MODEL],
        "subscriptions": ["playground", "second"],
    },
    "batch": {
        "display_name": "Batch",
        "requests_per_minute": 1_000,
        "tokens_per_minute": 100_000,
        "models": ["hl"],
        "subscriptions": ["nightly"],
    },
}
KEYS = {"developers/playground": KEY, "batch/nightly": OTHER_KEY}


def plan(**gateway: Any) -> AzurePlan:
    extra_apis = {"azure_openai_api": True, "bearer_api": True}
    return builders.plan("dev", gateway={"products": PRODUCTS, "cors_origins": [ORIGIN], **extra_apis, **gateway})


def service(algorithm: Algorithm = Algorithm.SLIDING_WINDOW, **gateway: Any) -> GatewayConfig:
    """The gateway of the plan, with keys that the program would never make, but an operator may."""
    made = gateway_config_of(plan(**gateway), backend_key=BACKEND_KEY, keys=KEYS)
    foreign = (
        Subscription("master", SubscriptionScope.ALL_APIS, "", (ALL_ACCESS_KEY,)),
        Subscription("somebodys", SubscriptionScope.API, made.apis[0].id, (API_KEY,)),
        Subscription("suspended", SubscriptionScope.PRODUCT, "developers", (IDLE_KEY,), active=False),
    )
    return replace(made, algorithm=algorithm, subscriptions=(*made.subscriptions, *foreign))


def answer(
    status: int = 200, body: bytes | None = None, headers: Mapping[str, str] | None = None, **usage: int
) -> Callable[[], Response]:
    """A backend's answer; `prompt` and `completion` are the tokens that it reports."""
    value: dict[str, Any] = {"choices": [{"message": {"content": "Hello."}}]}
    if usage:
        value["usage"] = {"prompt_tokens": usage["prompt"], "completion_tokens": usage["completion"]}
    data = json.dumps(value).encode() if body is None else body

    def make() -> Response:
        made = Headers([("Content-Type", "application/json"), *(headers or {}).items()])
        return Response.whole(status, "X", made, data)

    return make


def streamed(*events: Any, status: int = 200) -> Callable[[], Response]:
    """A stream of server-sent events, one at a time."""

    def make() -> Response:
        async def body() -> AsyncIterator[bytes]:
            for event in events:
                yield b"data: " + json.dumps(event).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        return Response(status, "OK", Headers([("Content-Type", "text/event-stream")]), body())

    return make


def words(*texts: str, prompt: int | None = None, completion: int = 0) -> list[dict[str, Any]]:
    """The events of a streamed answer; with `prompt`, the last one reports the usage."""
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    if prompt is not None:
        events.append({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
    return events


@dataclass
class HeldStream:
    """A stream that makes each chunk only when somebody asks for it; it ends, for gateways that want it whole."""

    given: int = 0
    most: int = 100

    @staticmethod
    def chunk(number: int) -> bytes:
        return b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % number

    async def _pieces(self) -> AsyncIterator[bytes]:
        while self.given < self.most:
            self.given += 1
            yield self.chunk(self.given - 1)

    def response(self) -> Response:
        return Response(200, "OK", Headers([("Content-Type", "text/event-stream")]), self._pieces())


def held_stream() -> HeldStream:
    return HeldStream()


@dataclass
class Answered:
    """An answer, read to its end."""

    status: int
    headers: Headers
    body: bytes
    reason: str = ""

    @property
    def error(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert set(found) == {"error"}, found
        return dict(found["error"])


@dataclass
class Lab:
    """A gateway, what its backends got, and the seconds that it waited. `made` spares reading the policies again."""

    service: GatewayConfig
    made: Gateway | None = None
    now: float = START
    sent: list[tuple[str, Request, float]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    replies: list[Callable[[], Response] | Exception] = field(default_factory=list)
    """The next answers; when there are none left, `usual`."""
    usual: Callable[[], Response] = field(default_factory=answer)
    inside: list[tuple[str, Request, float]] = field(default_factory=list)
    """What one API handed to another."""
    broken_inside: Exception | None = None

    def __post_init__(self) -> None:
        environment = Environment(
            counters=Counters(self.service.algorithm),
            backends=Backends(self.service.backends, self.service.pools),
            send=self._send,
            clock=lambda: self.now,
            sleep=self._sleep,
        )
        self.gateway = copy.copy(self.made) if self.made else Gateway(self.service, environment)
        self.gateway.environment = environment

    @property
    def counters(self) -> Counters:
        return self.gateway.environment.counters

    @property
    def metrics(self) -> list[Metric]:
        return self.gateway.environment.metrics

    @property
    def last(self) -> Request:
        return self.sent[-1][1]

    async def _send(self, url: str, request: Request, timeout_s: float) -> Response:
        if url.startswith("https://"):  # the gateway's own name: the API that leads to the first one
            self.inside.append((url, replace(request, headers=Headers(request.headers)), timeout_s))
            if self.broken_inside is not None:
                raise self.broken_inside
            return await self.gateway.handle(replace(request, path=urlsplit(url).path))
        self.sent.append((url, request, timeout_s))
        reply = self.replies.pop(0) if self.replies else self.usual
        if isinstance(reply, Exception):
            raise reply
        return reply()

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def ask(self, path: str = "/v1/chat/completions", **changes: Any) -> Answered:
        """Send a request and read the answer to its end."""
        response = await self.gateway.handle(request(path, **changes))
        return Answered(response.status, response.headers, await response.read(), response.reason)


def request(
    path: str = "/v1/chat/completions",
    *,
    key: str | None = KEY,
    method: str | None = None,
    headers: Mapping[str, str] | None = None,
    query: list[tuple[str, str]] | None = None,
    body: bytes | None = None,
    say: str | None = "Hi",
    stream: bool = False,
) -> Request:
    """A chat request, unless told otherwise; `say` None is a GET."""
    if body is None and say is not None:
        messages = [{"role": "user", "content": say}]
        body = json.dumps({"model": MODEL, "messages": messages, "stream": stream}).encode()
    own = Headers({"Content-Type": "application/json", **(headers or {})}.items())
    if key is not None:
        own.set("Ocp-Apim-Subscription-Key", key)
    return Request(method or ("POST" if body is not None else "GET"), path, list(query or ()), own, body)
