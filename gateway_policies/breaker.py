"""When a node rests: the one circuit breaker of all backends, as data that Azure's resource and the policy lab read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BreakerRule:
    """`failures` answers with a status in one of `statuses` (first to last) within `window_s` stop a backend.

    It rests for `rest_s`, or for as long as the answer's Retry-After says.
    """

    name: str
    failures: int
    window_s: int
    rest_s: int
    statuses: tuple[tuple[int, int], ...]


NODE_CANNOT_SERVE = BreakerRule("node-cannot-serve", failures=3, window_s=30, rest_s=30, statuses=((502, 503),))
"""502 and 503 only. 429 is a full queue, which the policy's retry takes elsewhere; 504 and 500 can be one client's
doing, and no client may switch off nodes."""
