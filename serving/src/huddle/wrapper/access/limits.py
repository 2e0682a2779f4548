"""Rates and quotas of subscribers: reserve before the engine works, settle when it has counted.

What a request may use is reserved when it is admitted and replaced by what it did use when that is known. The promise,
which a property test holds the code to:

    used + reserved  <=  limit  +  sum over running requests of max(0, actual - reserved)

that is: only what a running request uses beyond its declaration can go over, and it counts against the time after.
Everything here is pure: time is an argument, in seconds.
"""

import math
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from typing import Final

from huddle.wrapper.errors import ErrorType, RequestError

_SLOTS: Final = 60  # a window is this many slots; a charge counts up to one slot longer than the window


@verify(UNIQUE)
class Limit(StrEnum):
    """The names of limits, as metrics and refusals show them."""

    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_MINUTE = "tokens_per_minute"
    TOKENS_PER_DAY = "tokens_per_day"
    CONCURRENCY = "max_concurrency"


_TOKEN_LIMITS: Final = (Limit.TOKENS_PER_MINUTE, Limit.TOKENS_PER_DAY)


@dataclass(frozen=True, slots=True)
class Quota:
    """What one subscriber may use; None means without limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    max_concurrency: int | None = None  # sequences

    def share(self, workers: int) -> "Quota":
        """One worker's part of it. Parts are rounded down, so together they never exceed the whole."""
        return Quota(
            *(
                None if v is None else v // workers
                for v in (self.requests_per_minute, self.tokens_per_minute, self.tokens_per_day, self.max_concurrency)
            )
        )


class Window:
    """A sliding window: charges of settled requests by slot, and reservations of running ones."""

    def __init__(self, limit: int | None, span_s: float) -> None:
        self.limit = limit
        self._slot_s = span_s / _SLOTS
        self._charges: dict[int, int] = {}  # slot number → amount, oldest first
        self._charged = 0
        self._slot = 0  # of the last look
        self.reserved = 0

    def used(self, now: float) -> int:
        """What counts now: charges of the window, and reservations."""
        self._expire(now)
        return self._charged + self.reserved

    def slot(self, now: float) -> int:
        """The slot of a moment."""
        return math.floor(now / self._slot_s)

    def charge(self, slot: int, amount: int, now: float) -> None:
        """Charge an amount to the slot in which its request was admitted, unless that is out of the window."""
        self._expire(now)
        if amount and slot >= self._slot - _SLOTS:
            self._charges[slot] = self._charges.get(slot, 0) + amount
            self._charged += amount

    def wait_s(self, amount: int, now: float) -> float:
        """Seconds until `amount` could fit, if nothing else happened; 0 when it fits now."""
        if self.limit is None or self._charged + self.reserved + amount <= self.limit:  # also with what has expired
            return 0.0
        excess = self.used(now) + amount - self.limit
        if excess <= 0:
            return 0.0
        for slot in sorted(self._charges):
            excess -= self._charges[slot]
            if excess <= 0:
                return max((slot + _SLOTS + 1) * self._slot_s - now, self._slot_s)
        return self._slot_s  # what is in the way is still running; nobody knows for how long

    def _expire(self, now: float) -> None:
        slot = self.slot(now)
        if slot == self._slot:
            return
        self._slot = slot
        oldest = slot - _SLOTS
        for slot in [slot for slot in self._charges if slot < oldest]:
            self._charged -= self._charges.pop(slot)


@dataclass(slots=True)
class Reservation:
    """The tokens that a running request has claimed, until it is settled."""

    tokens: int
    sequences: int
    slots: tuple[int, int]
    settled: bool = False


class Arrival:
    """A request whose head is judged and whose body is still to come, or to be prepared. It ends once."""

    def __init__(self, subscriber: "Subscriber") -> None:
        self._subscriber: Subscriber | None = subscriber
        subscriber.arriving += 1

    def end(self) -> None:
        """The request is prepared, or given up."""
        if self._subscriber is not None:
            self._subscriber.arriving -= 1
            self._subscriber = None


class Subscriber:
    """The limits of one key holder."""

    def __init__(self, quota: Quota) -> None:
        self._minute_requests = Window(None, 60)
        self._minute_tokens = Window(None, 60)
        self._day_tokens = Window(None, 86_400)
        self._token_windows = (self._minute_tokens, self._day_tokens)
        self._running = 0
        self.arriving = 0
        self._max_concurrency: int | None = None
        self.reconfigure(quota)

    def reconfigure(self, quota: Quota) -> None:
        """New limits; what has been used stays used."""
        self._minute_requests.limit = quota.requests_per_minute
        self._minute_tokens.limit = quota.tokens_per_minute
        self._day_tokens.limit = quota.tokens_per_day
        self._max_concurrency = quota.max_concurrency

    def arrive(self, now: float) -> Arrival:
        """Let a request's body come. Raises `LimitError`: those that arrive count as those that run do.

        From here on it counts in the rate, also when it is refused for what it holds: to read that is work.
        """
        if self._max_concurrency is not None and self._running + self.arriving >= self._max_concurrency:
            raise _over(Limit.CONCURRENCY, self._max_concurrency, 1)
        wait = self._minute_requests.wait_s(1, now)
        if wait > 0:
            raise _over(Limit.REQUESTS_PER_MINUTE, self._minute_requests.limit or 0, math.ceil(wait))
        self._minute_requests.charge(self._minute_requests.slot(now), 1, now)
        return Arrival(self)

    def reserve(self, tokens: int, sequences: int, now: float, *, batch: bool = False) -> Reservation:
        """Admit a request that has arrived, and declares `tokens`.

        Raises `RequestError` (429 with a time to wait; 400: never).
        `batch`: its sequences need not run at once, so one with more than are allowed takes all that are.
        """
        for name, window in zip(_TOKEN_LIMITS, self._token_windows, strict=True):
            if window.limit is not None and tokens > window.limit:  # waiting would not help
                raise RequestError(
                    400,
                    "request_exceeds_quota",
                    f"this request may use {tokens} tokens, more than {name.value} ({window.limit}) ever allows; "
                    "ask for fewer with max_tokens",
                    param="max_tokens",
                )
        most = self._max_concurrency
        if batch and most is not None:
            sequences = min(sequences, most)
        if most is not None and self._running + sequences > most:
            if sequences > most:
                raise RequestError(
                    400,
                    "request_exceeds_quota",
                    f"this request has {sequences} sequences (inputs x n), "
                    f"more than {Limit.CONCURRENCY.value} ({most}) ever allows; ask for fewer",
                )
            raise _over(Limit.CONCURRENCY, most, 1)
        for name, window in zip(_TOKEN_LIMITS, self._token_windows, strict=True):
            wait = window.wait_s(tokens, now)
            if wait > 0:
                raise _over(name, window.limit or 0, math.ceil(wait))
        self._running += sequences
        minute, day = self._token_windows
        minute.reserved += tokens
        day.reserved += tokens
        return Reservation(tokens, sequences, (minute.slot(now), day.slot(now)))

    def settle(self, reservation: Reservation, actual: int | None, now: float) -> None:
        """The request has ended, having used `actual` tokens; None when nobody knows: then all it declared."""
        if reservation.settled:
            return
        reservation.settled = True
        self._running -= reservation.sequences
        declared = reservation.tokens
        used = declared if actual is None else actual
        for window, slot in zip(self._token_windows, reservation.slots, strict=True):
            window.reserved -= declared
            window.charge(slot, used, now)

    def used(self, limit: Limit, now: float) -> int:
        """What counts against a limit now."""
        windows = {
            Limit.REQUESTS_PER_MINUTE: self._minute_requests,
            Limit.TOKENS_PER_MINUTE: self._minute_tokens,
            Limit.TOKENS_PER_DAY: self._day_tokens,
        }
        return self._running if limit is Limit.CONCURRENCY else windows[limit].used(now)


class LimitError(RequestError):
    """A 429; `limit` says which limit it was."""

    limit: Limit


def _over(limit: Limit, allowed: int, wait_s: int) -> LimitError:
    refusal = LimitError(
        429,
        "rate_limit_exceeded",
        f"over {limit.value} ({allowed}); try again in {wait_s} s",
        type=ErrorType.RATE_LIMIT,
        retry_after_s=wait_s,
    )
    refusal.limit = limit
    return refusal
