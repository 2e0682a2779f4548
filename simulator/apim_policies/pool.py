"""Backends, the pool over them, and the circuit breaker of each. Pure: time is an argument.

Sources: Microsoft's page on backends. Within a pool the lowest priority that has a backend left is used, by weight;
a tripped breaker takes its backend out until its time is over. Assumptions: balancing is exact where Azure says that it
is approximate, and one answer in the breaker's range counts as one failure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker's rule: `failures` answers with a status in `statuses` (ranges) within `window_s`."""

    failures: int
    window_s: float
    statuses: tuple[tuple[int, int], ...]
    trip_s: float
    accept_retry_after: bool


@dataclass(frozen=True)
class Backend:
    """One backend."""

    id: str
    url: str
    breaker: Breaker | None = None


@dataclass(frozen=True)
class PoolItem:
    """A backend's part in a pool."""

    backend: str
    priority: int = 1
    weight: int = 1


@dataclass(frozen=True)
class Pool:
    """A pool."""

    id: str
    items: tuple[PoolItem, ...]


@dataclass
class _Health:
    failures: deque[float] = field(default_factory=deque)
    rests_until: float = 0.0
    given: float = 0.0


class Backends:
    """Chooses backends and remembers how they did."""

    def __init__(self, backends: tuple[Backend, ...], pools: tuple[Pool, ...]) -> None:
        self._backends = {backend.id: backend for backend in backends}
        self._pools = {pool.id: pool for pool in pools}
        self._health = {backend.id: _Health() for backend in backends}

    def knows(self, name: str) -> bool:
        """Whether there is a backend or a pool of that name."""
        return name in self._backends or name in self._pools

    def choose(self, name: str, now: float) -> Backend | None:
        """The backend for the next request; None when every one of them rests."""
        if name in self._backends:
            return self._backends[name] if self._up(name, now) else None
        items = [item for item in self._pools[name].items if item.weight and self._up(item.backend, now)]
        first = [item for item in items if item.priority == min(item.priority for item in items)]
        if not first:
            return None
        chosen = min(first, key=lambda item: (self._health[item.backend].given + 1) / item.weight)
        self._health[chosen.backend].given += 1
        return self._backends[chosen.backend]

    def note(self, backend: Backend, status: int, retry_after_s: float | None, now: float) -> None:
        """Remember an answer."""
        breaker = backend.breaker
        if breaker is None or not any(low <= status <= high for low, high in breaker.statuses):
            return
        health = self._health[backend.id]
        health.failures.append(now)
        while health.failures[0] <= now - breaker.window_s:
            health.failures.popleft()
        if len(health.failures) >= breaker.failures:
            rest = retry_after_s if breaker.accept_retry_after and retry_after_s is not None else breaker.trip_s
            health.rests_until = now + rest
            health.failures.clear()

    def soonest_s(self, name: str, now: float) -> float:
        """Seconds until one of a pool's backends is back."""
        ids = [item.backend for item in self._pools[name].items] if name in self._pools else [name]
        return min((self._health[backend].rests_until - now for backend in ids), default=0.0)

    def _up(self, name: str, now: float) -> bool:
        return self._health[name].rests_until <= now
