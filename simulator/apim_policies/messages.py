"""HTTP messages as policies see them: header names without case, repeated headers kept, bodies that flow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field


class Headers:
    """Headers in their order; a name may stand several times."""

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        self._items = list(items)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._items)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> str | None:
        """The values of a header, joined by commas as API Management's GetValueOrDefault does; None without one."""
        values = [value for known, value in self._items if known.lower() == name.lower()]
        return ",".join(values) if values else None

    def delete(self, *names: str) -> None:
        """Take headers out."""
        gone = {name.lower() for name in names}
        self._items = [(name, value) for name, value in self._items if name.lower() not in gone]

    def set(self, name: str, value: str) -> None:
        """One value in the place of all that stood there."""
        self.delete(name)
        self._items.append((name, value))


@dataclass
class Request:
    """A request. `path` begins with a slash and has no query; `query` keeps order and repetitions.

    `body` is None where there is none: `buffer-request-body` has the gateway hold a request's body whole.
    """

    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: Headers = field(default_factory=Headers)
    body: bytes | None = None


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def _once(data: bytes) -> AsyncIterator[bytes]:
    if data:
        yield data


@dataclass
class Response:
    """An answer. `body` is read once, chunk by chunk as it comes; `close` gives up the rest of it."""

    status: int
    reason: str = ""
    headers: Headers = field(default_factory=Headers)
    body: AsyncIterator[bytes] = field(default_factory=_nothing)
    close: Callable[[], Awaitable[None]] | None = None

    @staticmethod
    def whole(status: int, reason: str, headers: Headers, body: bytes) -> Response:
        """An answer whose body is at hand."""
        headers.set("Content-Length", str(len(body)))
        return Response(status, reason, headers, _once(body))

    async def read(self) -> bytes:
        """All of the body."""
        try:
            return b"".join([chunk async for chunk in self.body])
        finally:
            if self.close is not None:
                await self.close()
