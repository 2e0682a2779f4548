"""Rates and quotas as API Management keeps them. Pure: time is an argument, in seconds since 1970 (UTC).

Microsoft's page on flexible throttling says that classic tiers and v2 tiers count differently: a sliding window and a
token bucket. How finely they do it is not said; the lab counts exactly. Quotas have fixed windows that begin at whole
hours, days, weeks, months and years in UTC (assumption: weeks begin on Monday).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import UNIQUE, StrEnum, verify
from typing import Protocol


@verify(UNIQUE)
class Algorithm(StrEnum):
    """How a tier counts rates."""

    SLIDING_WINDOW = "sliding-window"
    TOKEN_BUCKET = "token-bucket"  # noqa: S105 - an algorithm


@verify(UNIQUE)
class Period(StrEnum):
    """The values of `token-quota-period`."""

    HOURLY = "Hourly"
    DAILY = "Daily"
    WEEKLY = "Weekly"
    MONTHLY = "Monthly"
    YEARLY = "Yearly"


class Counter(Protocol):
    """What is left of a limit. `take` may go below nothing: an answer is counted when it is known."""

    def room(self, now: float) -> float:
        """What may still be used."""

    def take(self, amount: float, now: float) -> None:
        """Use some; a negative amount gives back."""

    def wait_s(self, amount: float, now: float) -> int:
        """Seconds until that much could be used, if nobody else used any."""


class SlidingWindow:
    """Counts what was used in the last `period_s` seconds."""

    def __init__(self, limit: int, period_s: float) -> None:
        self.limit = limit
        self._period_s = period_s
        self._taken: deque[tuple[float, float]] = deque()

    def room(self, now: float) -> float:
        """What may still be used."""
        while self._taken and self._taken[0][0] <= now - self._period_s:
            self._taken.popleft()
        return self.limit - sum(amount for _, amount in self._taken)

    def take(self, amount: float, now: float) -> None:
        """Use some."""
        self._taken.append((now, amount))

    def wait_s(self, amount: float, now: float) -> int:
        """Until enough of what was used is out of the window."""
        room = self.room(now)
        for moment, taken in self._taken:
            if room >= amount:
                break
            room += taken
            wait = moment + self._period_s - now
        else:
            wait = self._period_s
        return max(1, math.ceil(wait)) if self.room(now) < amount else 0


class TokenBucket:
    """Holds `limit`, and fills up evenly: `limit` in `period_s` seconds."""

    def __init__(self, limit: int, period_s: float) -> None:
        self.limit = limit
        self._per_s = limit / period_s
        self._level = float(limit)
        self._at = -math.inf

    def room(self, now: float) -> float:
        """What may still be used."""
        if self._at > -math.inf:
            self._level = min(self.limit, self._level + (now - self._at) * self._per_s)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        """Use some."""
        self.room(now)
        self._level -= amount

    def wait_s(self, amount: float, now: float) -> int:
        """Until the bucket holds enough."""
        missing = min(amount, self.limit) - self.room(now)
        return max(1, math.ceil(missing / self._per_s)) if missing > 0 else 0


class FixedWindow:
    """Counts since the beginning of the hour, day, week, month or year."""

    def __init__(self, limit: int, period: Period) -> None:
        self.limit = limit
        self._period = period
        self._window = datetime.min.replace(tzinfo=UTC)
        self._taken = 0.0

    def room(self, now: float) -> float:
        """What may still be used."""
        window, _ = _bounds(now, self._period)
        if window != self._window:
            self._window, self._taken = window, 0.0
        return self.limit - self._taken

    def take(self, amount: float, now: float) -> None:
        """Use some. An answer that ends after its window counts in the next one (assumption)."""
        self.room(now)
        self._taken += amount

    def wait_s(self, amount: float, now: float) -> int:
        """Until the window ends."""
        if self.room(now) >= amount:
            return 0
        _, end = _bounds(now, self._period)
        return max(1, math.ceil(end.timestamp() - now))


def _bounds(now: float, period: Period) -> tuple[datetime, datetime]:
    moment = datetime.fromtimestamp(now, UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match period:
        case Period.HOURLY:
            hour = moment.replace(minute=0, second=0, microsecond=0)
            return hour, hour + timedelta(hours=1)
        case Period.DAILY:
            return day, day + timedelta(days=1)
        case Period.WEEKLY:
            monday = day - timedelta(days=day.weekday())
            return monday, monday + timedelta(weeks=1)
        case Period.MONTHLY:
            first = day.replace(day=1)
            return first, (first + timedelta(days=32)).replace(day=1)
        case Period.YEARLY:
            first = day.replace(month=1, day=1)
            return first, first.replace(year=first.year + 1)


@dataclass
class Counters:
    """All counters of a gateway, by policy and counter key: one counter for a key, wherever the policy stands."""

    algorithm: Algorithm
    held: dict[tuple[str, str], Counter] = field(default_factory=dict)

    def rate(self, policy: str, key: str, limit: int, period_s: float) -> tuple[str, str]:
        """The name of a rate's counter, which is made when it is new."""
        make = SlidingWindow if self.algorithm is Algorithm.SLIDING_WINDOW else TokenBucket
        return self._made((policy, key), lambda: make(limit, period_s))

    def quota(self, policy: str, key: str, limit: int, period: Period) -> tuple[str, str]:
        """The name of a quota's counter."""
        return self._made((f"{policy} quota", key), lambda: FixedWindow(limit, period))

    def __getitem__(self, name: tuple[str, str]) -> Counter:
        return self.held[name]

    def _made(self, name: tuple[str, str], make: Callable[[], Counter]) -> tuple[str, str]:
        self.held.setdefault(name, make())
        return name
