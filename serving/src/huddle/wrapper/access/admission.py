"""A bounded number of sequences at the engine, a bounded and fair line for the others, an honest answer beyond it."""

import asyncio
import math
from typing import Final

from huddle.wrapper.access.fairness import Bounds, Holder, Places, Waiting
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import ErrorType, RequestError

_RETRY_MAX_S: Final = 60
_SMOOTHING: Final = 0.1  # weight of the newest request in the mean time at the engine


class Admission:
    """Lets requests in, each with the places that its sequences take. Not thread-safe: one per event loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._places = Places(bounds)
        self._mean_s: float | None = None
        self.try_enter = self._places.take
        self.resize = self._places.resize

    @property
    def running(self) -> int:
        """Sequences at the engine."""
        return self._places.running

    @property
    def waiting(self) -> int:
        """Sequences in line."""
        return self._places.waiting

    async def enter(self, caller: Holder, weight: int, until: Deadline) -> None:
        """Take places, waiting in line for them. Raises `RequestError` (429) when the line or the wait is too long."""
        if self.try_enter(caller, weight):
            return
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        request = Waiting(caller, weight, lambda inside: None if place.done() else place.set_result(inside))
        self._places.line_up(request)
        try:
            async with until.bound():
                inside = await place
        except BaseException as error:
            if request.inside:
                self._places.give_back(caller, weight)  # the places came as we gave up
            else:
                self._places.withdraw(request)
            if isinstance(error, TimeoutError):
                raise self._busy(weight, until.missed("a place there")) from None
            raise
        if not inside:
            raise self._busy(weight, "the engine is busy and the queue is full")

    def leave(self, caller: Holder, weight: int, took_s: float) -> None:
        """Give the places back after `took_s` seconds at the engine."""
        mean_s = self._mean_s
        self._mean_s = took_s if mean_s is None else mean_s + _SMOOTHING * (took_s - mean_s)
        self._places.give_back(caller, weight)

    def _busy(self, weight: int, message: str) -> RequestError:
        """A refusal, with the time in which the places become free that all need who wait, at the measured pace."""
        rounds = (self.waiting + weight) / self._places.bounds.concurrency
        wait_s = min(max(math.ceil(rounds * (self._mean_s or 0)), 1), _RETRY_MAX_S)
        return RequestError(429, "engine_busy", message, type=ErrorType.OVERLOADED, retry_after_s=wait_s)
