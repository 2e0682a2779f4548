"""Run the engine's process tree: start it, watch it, and take the whole of it down in order.

Exit codes: 0 stopped as asked; the engine's own code when it fails; 128 + n when signal n ended it; 1 when it ended by
itself saying 0 (vLLM exits with 0 when its engine dies: research on H100s); 124 when it had to be killed.
"""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from huddle.launch import processes

FORCED = 124
ENDED_BY_ITSELF = 1
DRAIN_GRACE_S = 15.0  # on top of the engine's own --shutdown-timeout, for it to close down after the last stream
KILL_GRACE_S = 10.0
_ASK_S = 0.5
_QUIET_ANSWERS = 2  # a request on its way from an API server to the engine is in no gauge for a moment
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def longest_stop_s(drain_s: float) -> float:
    """How long a stop can take at most; a supervisor above (systemd's TimeoutStopSec) must wait longer than this."""
    return drain_s + DRAIN_GRACE_S + 2 * KILL_GRACE_S


class Signals:
    """Turns SIGTERM, SIGINT, SIGHUP and SIGCHLD into readable events, without doing anything inside a handler."""

    def __enter__(self) -> "Signals":
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, _ignore) for number in (*_STOPS, signal.SIGCHLD)}
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_fd)
        for number, handler in self._old.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until a signal or the timeout; True when a stop was asked for."""
        ready, _, _ = select.select([self._read], [], [], timeout_s)
        return bool(ready) and any(number in _STOPS for number in os.read(self._read, 4096))

    def wait_for_stop(self, timeout_s: float) -> bool:
        """Sleep for the whole time unless a stop is asked for; True when it was."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if self.wait(left):
                return True
        return False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has the signal already."""


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    slot: str,
    drain_s: float,
    signals: Signals,
    log: Callable[[str], None],
    idle: Callable[[], bool] | None = None,
    grace_s: float = DRAIN_GRACE_S,
    kill_grace_s: float = KILL_GRACE_S,
) -> tuple[int, bool]:
    """Run to the end. Returns the exit code and whether the end was asked for.

    On the first of SIGTERM, SIGINT and SIGHUP only the engine's first process is told, so that it finishes its streams;
    at the second, or `drain_s` + `grace_s` later, all that is left gets SIGTERM, and SIGKILL `kill_grace_s` after that.
    An engine that does not finish its streams by itself comes with `idle`: it is told only when that holds, or after
    `drain_s`.
    """
    processes.adopt_orphans()
    child = subprocess.Popen(list(argv), env={**env, processes.MARK: processes.mark(slot)}, start_new_session=True)
    log(f"started pid {child.pid}")
    asked = _wait(child, signals, None)
    if asked:
        log(f"asked to stop: the engine gets up to {drain_s:g} s for its running requests")
        again = idle is not None and _wait_until_idle(child, signals, idle, drain_s)
        child.send_signal(signal.SIGTERM)
        if again or _wait(child, signals, grace_s if idle else drain_s + grace_s):
            log("asked again: not waiting any longer")
    forced = child.poll() is None
    rest = processes.tree()
    if rest:
        log(f"ending {len(rest)} process{'es' if len(rest) > 1 else ''} that {'are' if len(rest) > 1 else 'is'} left")
        stuck = processes.end(rest, kill_grace_s)
        if stuck:
            log(f"stuck in the kernel, reboot the node: {', '.join(str(process.pid) for process in stuck)}")
    code = child.wait()
    processes.reap(child.pid)
    return _exit_code(code, asked=asked, forced=forced), asked


def _wait(child: subprocess.Popen[bytes], signals: Signals, timeout_s: float | None) -> bool:
    """Wait for the child's end; True when a stop was asked for first."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while child.poll() is None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        if signals.wait(left):
            return True
        processes.reap(child.pid)
    return False


def _wait_until_idle(
    child: subprocess.Popen[bytes], signals: Signals, idle: Callable[[], bool], timeout_s: float
) -> bool:
    """Wait until the engine has said several times that it has no request; True when a stop was asked for again."""
    deadline, quiet = time.monotonic() + timeout_s, 0
    while child.poll() is None and time.monotonic() < deadline:
        quiet = quiet + 1 if idle() else 0
        if quiet == _QUIET_ANSWERS:
            return False
        if _wait(child, signals, _ASK_S):
            return True
    return False


def _exit_code(code: int, *, asked: bool, forced: bool) -> int:
    if asked:
        if forced:
            return FORCED
        return 0 if code in {0, -signal.SIGTERM, 128 + signal.SIGTERM} else _positive(code)
    return _positive(code) or ENDED_BY_ITSELF


def _positive(code: int) -> int:
    return 128 - code if code < 0 else code
