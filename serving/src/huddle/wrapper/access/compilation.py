"""Who may have the engine compile schemas and grammars: seconds under way, for each caller and in total.

The engine compiles in half of its cores' threads, one request after another, and never stops: not when the client has
gone either (vLLM 0.26.0 and 0.32.0). Four requests kept everybody's JSON mode waiting for more than six minutes. So
what is not cheap needs leave, unless the engine has answered it lately and so has it compiled.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final

from huddle.wrapper.access.auth import Caller
from huddle.wrapper.body.compile_cost import Compiling
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import ErrorType, RequestError

_KNOWN_MOST: Final = 512
_WAITING_EACH: Final = 16  # requests of one caller
_PASSED_MOST: Final = 8  # requests that may pass one that waits for room in the total
_PATIENCE: Final = 2  # estimated times that leave lasts when no answer ends it: cores are shared
_RETRY_MAX_S: Final = 60


@dataclass(eq=False, slots=True)
class Leave:
    """The leave of one request to have something compiled."""

    compilations: "Compilations"
    caller: Caller
    compiling: Compiling
    _timer: asyncio.TimerHandle | None = None
    _over: bool = False

    def sent(self) -> None:
        """The engine has it now. From here on time ends the leave, whether or not the client stays."""
        if self._timer is None and not self._over:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_PATIENCE * self.compiling.cost_s, self.end)

    def answered(self) -> None:
        """The engine has compiled it."""
        self.compilations.learn(self.compiling.key)
        self.end()

    def end(self) -> None:
        """Nothing is compiled for it any more, or never was."""
        if not self._over:
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            self.compilations.give_back(self)


@dataclass(eq=False, slots=True)
class _Waiting:
    caller: Caller
    compiling: Compiling
    passed_by: int = 0
    turn: asyncio.Future[Leave | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Compilations:
    """Seconds of compiling under way. First come, first served, but nobody waits for another caller's own bound."""

    def __init__(self, each_s: float, total_s: float, queue: int) -> None:
        self.resize(each_s, total_s, queue)
        self.total = 0.0
        self._each: Counter[Caller] = Counter()  # leaves
        self._each_s: dict[Caller, float] = {}
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._waiting: list[_Waiting] = []

    def resize(self, each_s: float, total_s: float, queue: int) -> None:
        """New bounds; what is under way stays."""
        self.each_s, self.total_s, self.queue = each_s, total_s, queue

    def needs_leave(self, compiling: Compiling | None) -> bool:
        """Whether the engine would have to compile it."""
        if compiling is None:
            return False
        if compiling.key in self._known:
            self._known.move_to_end(compiling.key)
            return False
        return True

    async def enter(self, caller: Caller, compiling: Compiling, until: Deadline) -> Leave | None:
        """Wait for leave; None when somebody else's answer has made it needless. Raises `RequestError` (429)."""
        waiting = _Waiting(caller, compiling)
        self._waiting.append(waiting)
        self._call()
        own = sum(waiting.caller == caller for waiting in self._waiting)
        if not waiting.turn.done() and (own > _WAITING_EACH or len(self._waiting) > self.queue):
            self._waiting.remove(waiting)
            raise self._busy("too many requests wait to have a schema or grammar compiled")
        try:
            async with until.bound():
                return await waiting.turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._call()  # it may have stood before others
            elif not waiting.turn.cancelled() and (leave := waiting.turn.result()) is not None:
                leave.end()  # the leave came as we gave up
            if isinstance(error, TimeoutError):
                message = until.missed("leave to have its schema or grammar compiled, behind others")
                raise self._busy(message) from None
            raise

    def learn(self, key: bytes) -> None:
        """The engine has compiled this; whoever waits for the same may go."""
        self._known[key] = None
        if len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        for waiting in [waiting for waiting in self._waiting if waiting.compiling.key == key]:
            self._waiting.remove(waiting)
            _tell(waiting, None)

    def give_back(self, leave: Leave) -> None:
        """A leave has ended."""
        caller = leave.caller
        self.total = max(self.total - leave.compiling.cost_s, 0.0)
        self._each[caller] -= 1
        self._each_s[caller] -= leave.compiling.cost_s
        if not self._each[caller]:
            del self._each[caller], self._each_s[caller]
        if not self._each:
            self.total = 0.0  # whatever rounding has left
        self._call()

    def _call(self) -> None:
        """Let those go whose turn it is: in order, past those whose own caller has enough under way.

        A few may also pass the first that does not fit the total; then all wait until it does.
        """
        passed: _Waiting | None = None
        for waiting in tuple(self._waiting):
            caller, cost_s = waiting.caller, waiting.compiling.cost_s
            if caller in self._each and self._each_s[caller] + cost_s > self.each_s:
                continue
            if self._each and self.total + cost_s > self.total_s:
                passed = passed or waiting
            elif passed is None or passed.passed_by < _PASSED_MOST:
                if passed is not None:
                    passed.passed_by += 1
                self._waiting.remove(waiting)
                _tell(waiting, self._give(caller, waiting.compiling))

    def _give(self, caller: Caller, compiling: Compiling) -> Leave:
        self.total += compiling.cost_s
        self._each[caller] += 1
        self._each_s[caller] = self._each_s.get(caller, 0.0) + compiling.cost_s
        return Leave(self, caller, compiling)

    def _busy(self, message: str) -> RequestError:
        wait_s = min(max(math.ceil(self.total), 1), _RETRY_MAX_S)
        return RequestError(429, "compile_busy", message, type=ErrorType.OVERLOADED, retry_after_s=wait_s)


def _tell(waiting: _Waiting, leave: Leave | None) -> None:
    if not waiting.turn.done():
        waiting.turn.set_result(leave)
    elif leave is not None:
        leave.end()
