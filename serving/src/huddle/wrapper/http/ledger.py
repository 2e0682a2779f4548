"""Memory that requests hold, by owner: entered once, left once, never more than an owner's part or the total.

What counts are bodies (as they arrive, whole, and prepared until the engine's first byte), what of an answer waits for
its own rest to be judged, and what of it waits for its reader. Heads are counted apart: their number and size are
bounded, so they never compete with bodies.

Pure: no clock and no I/O. One per event loop.
"""

from collections.abc import Hashable
from typing import Final

from huddle.wrapper.errors import ErrorType, RequestError

SMALL_BYTES: Final = 64 * 1024
"""A holding up to this size may also use the room that is kept for small ones."""
_KEPT: Final = 8  # one part of so many is kept
_RETRY_AFTER_S: Final = 2


class Ledger:
    """The accounts. `total` and `per_owner` are bytes."""

    def __init__(self, total: int, per_owner: int) -> None:
        self.total = total
        self.per_owner = per_owner
        self.held = 0
        self.heads = 0
        self._by_owner: dict[Hashable, int] = {}

    @property
    def owners(self) -> dict[Hashable, int]:
        """Bytes by owner, without those who hold nothing."""
        return dict(self._by_owner)

    def change(self, owner: Hashable, before: int, after: int) -> None:
        """One holding of `owner` becomes larger or smaller. Raises `RequestError` (429 or 503), changing nothing."""
        delta = after - before
        held = self._by_owner.get(owner, 0) + delta
        if delta > 0:
            if held > self.per_owner:
                raise _no_room(429, "your requests that arrive or wait hold as much memory as one caller may have")
            if self.held + delta > (self.total if after <= SMALL_BYTES else large_room(self.total)):
                raise _no_room(503, "too many large requests are arriving or waiting at once")
        self.held += delta
        if held:
            self._by_owner[owner] = held
        else:
            del self._by_owner[owner]


class Holding:
    """What one connection holds for its current request."""

    __slots__ = ("_head", "_ledger", "_owner", "_partial", "_size")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._owner: Hashable = None
        self._size = 0
        self._partial = 0
        self._head = 0

    def belongs_to(self, owner: Hashable) -> None:
        """The owner is known. Nothing but a head is held before."""
        self.hold(0)
        self._owner = owner

    def hold_head(self, size: int) -> None:
        """Of the head, `size` bytes are held."""
        self._ledger.heads += size - self._head
        self._head = size

    def hold(self, size: int) -> None:
        """Of a body, or of an answer for its reader, `size` bytes are held. Raises `RequestError` without room."""
        if size != self._size:
            partial = self._partial
            self._ledger.change(self._owner, self._size + partial, size + partial)
            self._size = size

    def hold_partial(self, size: int) -> None:
        """Of an answer, `size` bytes wait for what follows them. Raises `RequestError` without room."""
        if size != self._partial:
            others = self._size
            self._ledger.change(self._owner, others + self._partial, others + size)
            self._partial = size

    def release(self) -> None:
        """Nothing is held any more."""
        self.hold(0)
        self.hold_partial(0)
        self.hold_head(0)


def large_room(total: int) -> int:
    """What is left of a total for holdings that are not small."""
    return total - total // _KEPT


def _no_room(status: int, message: str) -> RequestError:
    kind = ErrorType.RATE_LIMIT if status == 429 else ErrorType.OVERLOADED
    return RequestError(status, "out_of_buffers", message, type=kind, retry_after_s=_RETRY_AFTER_S, close=True)
