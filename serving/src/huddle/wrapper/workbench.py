"""Large bodies are prepared one at a time, in a thread, and between two of them the event loop has as long for itself.

Streams go on beside a thread only where it lets them: what one body may take at once is bounded by `body.effort`, and
many bodies in a row by the pauses.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Workbench:
    """One per event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "workbench")
        self._turn = asyncio.Lock()

    async def run(self, work: Callable[[], T]) -> T:
        """Do the work when it is its turn, and give its result back at once."""
        await self._turn.acquire()
        loop = asyncio.get_running_loop()
        begun = time.perf_counter()
        try:
            return await loop.run_in_executor(self._thread, work)
        finally:
            loop.call_later(time.perf_counter() - begun, self._turn.release)
