"""A bounded number of requests at the engine, a bounded queue for the rest, an honest answer for what is over."""

import asyncio
import math
from collections import deque
from typing import Final

from huddle.wrapper.errors import ErrorType, RequestError

_RETRY_MAX_S: Final = 60
_SMOOTHING: Final = 0.1  # weight of the newest request in the mean time at the engine


class Admission:
    """First come, first served. Not thread-safe: one per event loop."""

    def __init__(self, concurrency: int, queue: int, wait_s: float) -> None:
        self.concurrency = concurrency
        self.queue = queue
        self.wait_s = wait_s
        self.running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._mean_s = 1.0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def try_enter(self) -> bool:
        """Take a place now, if one is free and nobody waits for it."""
        if self.running < self.concurrency and not self._waiting:
            self.running += 1
            return True
        return False

    async def enter(self) -> None:
        """Take a place, waiting in line for it. Raises `RequestError` (429) when the line or the wait is too long."""
        if self.try_enter():
            return
        if len(self._waiting) >= self.queue:
            raise self._busy("the engine is busy and the queue is full")
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self.wait_s):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._hand_on()  # the place came as we gave up
            elif place in self._waiting:
                self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                raise self._busy(f"no place at the engine within {self.wait_s:g} s") from None
            raise

    def leave(self, took_s: float) -> None:
        """Give a place back after `took_s` seconds at the engine."""
        self._mean_s += _SMOOTHING * (took_s - self._mean_s)
        self._hand_on()

    def resize(self, concurrency: int, queue: int, wait_s: float) -> None:
        """New limits; those inside stay inside."""
        self.concurrency, self.queue, self.wait_s = concurrency, queue, wait_s
        while self._waiting and self.running < self.concurrency:
            self.running += 1
            self._hand_on()

    def _hand_on(self) -> None:
        """Pass one taken place to the next in line, or free it."""
        if self.running <= self.concurrency:
            while self._waiting:
                place = self._waiting.popleft()
                if not place.done():
                    place.set_result(None)
                    return
        self.running -= 1

    def _busy(self, message: str) -> RequestError:
        turns = (len(self._waiting) + 1) / self.concurrency
        wait_s = min(max(math.ceil(turns * self._mean_s), 1), _RETRY_MAX_S)
        return RequestError(429, "engine_busy", message, type=ErrorType.OVERLOADED, retry_after_s=wait_s)
