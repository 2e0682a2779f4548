"""Large bodies are read one at a time, and so are large answers. Callers take turns.

Nobody waits for more than one body of each other, nor for somebody else's answers with a body.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from huddle.wrapper.access.fairness import Holder
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import ErrorType, RequestError
from huddle.wrapper.helper_process import HelperProcess


class Workbench:
    """One per event loop. `each`: the most bodies of one caller in line; who is in line stays when it changes."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.helper = HelperProcess()
        self._taken = False
        self._lines: dict[Holder, deque[asyncio.Future[None]]] = {}  # whose turn is next first

    @asynccontextmanager
    async def turn(self, caller: Holder, until: Deadline) -> AsyncIterator[None]:
        """Have the bench. Raises `RequestError` (429): the line or the wait is too long."""
        if self._taken:
            await self._wait(caller, until)
        self._taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, caller: Holder, until: Deadline) -> None:
        if len(self._lines.get(caller, ())) >= self.each:
            raise _busy(f"{self.each} large bodies of yours wait to be read already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(caller, deque()).append(turn)
        try:
            async with until.bound():
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # the turn came as we gave up
            elif turn in (line := self._lines.get(caller, deque())):
                line.remove(turn)
                if not line:
                    del self._lines[caller]
            if isinstance(error, TimeoutError):
                raise _busy(until.missed("its turn among the large bodies to be read")) from None
            raise

    def _pass_on(self) -> None:
        """The next caller's turn; his others wait until all have had theirs."""
        while self._lines:
            caller = next(iter(self._lines))
            line = self._lines.pop(caller)
            turn = line.popleft()
            if line:
                self._lines[caller] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


def _busy(message: str) -> RequestError:
    return RequestError(429, "engine_busy", message, type=ErrorType.OVERLOADED, retry_after_s=1)
