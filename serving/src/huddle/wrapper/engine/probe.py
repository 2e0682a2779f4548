"""Is the engine there, and does it serve what we promise? Asked of it every few seconds; answers come from memory."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Final, TypeGuard

from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.upstream import ResponseHead, UpstreamPool

_INTERVAL_S: Final = 2.0
_RETRY_S: Final = 0.5
_TIMEOUT_S: Final = 5.0
_BODY_MAX: Final = 256 * 1024  # of /v1/models: vLLM 0.26.0 uses 500 bytes for a name
_CONTEXT_MAX: Final = 2**31  # tokens; more is no length of a context

Models = tuple[frozenset[str], dict[str, int]]
"""Names of models, and the context lengths (tokens) that are known of them."""


class _Collector:
    """An upstream sink that keeps a small answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._body = bytearray()

    def response_head(self, head: ResponseHead) -> None:
        self._status = head.status

    def response_body(self, data: bytes, *, last: bool) -> None:  # noqa: ARG002 - the sink's interface
        if len(self._body) + len(data) <= _BODY_MAX:
            self._body += data

    def response_end(self) -> None:
        if not self.done.done():
            self.done.set_result((self._status, bytes(self._body)))

    def response_lost(self, refusal: RequestError, *, stale: bool) -> None:  # noqa: ARG002 - the sink's interface
        if not self.done.done():
            self.done.set_exception(refusal)


async def fetch(pool: UpstreamPool, path: str, key: str | None) -> tuple[int, bytes]:
    """GET a path of the engine on a fresh connection. Raises `RequestError` or `TimeoutError`."""
    connection = await pool.connect()
    collector = _Collector()
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    request = f"GET {path} HTTP/1.1\r\nhost: {pool.address.authority}\r\n{authorization}connection: close\r\n\r\n"
    connection.send(request.encode("latin-1"), b"", collector, reuse=False)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await collector.done
    except (TimeoutError, asyncio.CancelledError):
        connection.abort()
        raise


class EngineProbe:
    """Keeps `problem` up to date: None while the engine is healthy and serves the wanted names."""

    def __init__(  # noqa: PLR0917 - questions about one engine
        self,
        pool: UpstreamPool,
        key: Callable[[], str | None],
        wanted: Callable[[], Iterable[str]],
        learned: Callable[[], None],
        changed: Callable[[str | None], None],
        objection: Callable[[], str | None] = lambda: None,
        asked: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._key = key
        self._wanted = wanted
        self._learned = learned
        self._changed = changed
        self._objection = objection
        self._asked = asked
        self._models: Models | None = None  # as the engine has reported them since it was last down
        self.problem: str | None = "the engine has not been asked yet"

    @property
    def lengths(self) -> dict[str, int]:
        """Context lengths (tokens) by the engine's names of models, as far as it has said them since it was down."""
        return {} if self._models is None else self._models[1]

    async def run(self) -> None:
        """Ask the engine again and again, until the task is cancelled."""
        while True:
            problem = await self.ask()
            self._asked()
            if problem != self.problem:
                self.problem = problem
                self._changed(problem)
            await asyncio.sleep(_RETRY_S if problem else _INTERVAL_S)

    async def ask(self) -> str | None:
        """Ask once; returns what is wrong."""
        try:
            status, _ = await fetch(self._pool, "/health", self._key())
            if status != 200:
                self._models = None
                return f"the engine says {status} about its health"
            if self._models is None:
                self._models = await self._ask_models()
                self._learned()
        except (RequestError, TimeoutError, ValueError) as error:
            self._models = None
            return str(error) or "the engine does not answer"
        missing = sorted(set(self._wanted()) - self._models[0])
        if missing:
            self._models = None  # it may have spoken too early
            return f"the engine does not serve {', '.join(missing)}"
        return self._objection()  # a frozen engine still says 200 about its health

    async def _ask_models(self) -> Models:
        status, body = await fetch(self._pool, "/v1/models", self._key())
        if status != 200:
            raise ValueError(f"the engine says {status} about its models")
        return read_models(body)


def read_models(body: bytes) -> Models:
    """The names in an answer of `/v1/models`, and the context lengths (tokens) that go with them.

    What is no name or no length is left out. Raises `ValueError` when the whole is no list of models.
    """
    try:
        cards = json.loads(body)["data"]
        named = [(card["id"], card.get("max_model_len")) for card in cards if isinstance(card, dict) and "id" in card]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError("the engine's answer about its models is no list of models") from None
    lengths = {name: length for name, length in named if isinstance(name, str) and _is_length(length)}
    return frozenset(name for name, _ in named if isinstance(name, str)), lengths


def _is_length(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 < value <= _CONTEXT_MAX
