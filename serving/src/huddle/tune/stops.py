"""SIGINT, SIGTERM and SIGHUP while engines are measured: one stop, in order, however often somebody asks."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stoppable() -> Iterator[None]:
    """The first of them is a KeyboardInterrupt; further ones wait until the engine is down."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOPS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    old = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """What must not be left half done: a stop that is asked for inside takes effect at the end."""
    came: list[int] = []
    old = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
