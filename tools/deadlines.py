"""How long to wait for what must happen. A deadline ends a test that hangs; how long something took is never asserted.

The seconds that callers name are an idle machine's; `scaled` makes them this machine's, as it is now.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable

_ROUNDS, _ROUNDS_S = 200_000, 0.004
"""A loop, and how long it takes a core of the machine for which the deadlines were written (2.6 GHz)."""
_MOST = 20.0


def scaled(idle_s: float) -> float:
    """Seconds to wait here for what takes at most `idle_s` on an idle machine."""
    return idle_s * min(_MOST, max(1.0, _slowness()) * max(1.0, _crowd()))


def until(condition: Callable[[], object], what: str, idle_s: float = 120, *, every_s: float = 0.02) -> None:
    """Wait for something that happens elsewhere.

    Raises:
        AssertionError: it did not happen.
    """
    end = time.monotonic() + scaled(idle_s)
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never came true: {what}")
        time.sleep(every_s)


@functools.cache
def _slowness() -> float:
    """How many times slower a core is, by processor time: what else runs does not count."""
    begun = time.process_time()
    for _ in range(_ROUNDS):
        pass
    return (time.process_time() - begun) / _ROUNDS_S


def _crowd() -> float:
    """How many runnable processes share each core."""
    return (os.getloadavg()[0] + 1) / (os.cpu_count() or 1)
