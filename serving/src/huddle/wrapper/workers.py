"""Several processes behind one port (SO_REUSEPORT), for machines with cores to spare."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

from huddle.wrapper.observability.notify import Notifier

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_RESTART_PAUSE_S: Final = 1.0  # before a worker that died is started again: never a tight loop
_POLL_S: Final = 0.05
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Serve = Callable[[int, Callable[[], object]], None]
"""What a worker does, given its number and what to call when it listens."""


def supervise(count: int, serve: Serve, notifier: Notifier) -> int:
    """Fork `count` workers and keep them running until SIGTERM; signals are passed on. Returns an exit code.

    `serve` runs in each child with its number and what to call when it listens. A worker that fails before all have
    started ends everything: its configuration would not be better the next time.
    """
    children: dict[int, int] = {}  # pid → worker
    due = dict.fromkeys(range(count), 0.0)  # worker → when it is to be started
    stopping = False
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)

    def pass_on(number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = stopping or number != signal.SIGHUP
        for pid in list(children):
            os.kill(pid, number)

    def start(worker: int) -> None:
        # Signals wait until the child is known: one that came in between would be passed on to the others only.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            if stopping:
                return
            if pid := os.fork():
                children[pid] = worker
            else:
                _work(worker, serve, lambda: os.write(write_end, b"1"))
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    for number in _SIGNALS:
        signal.signal(number, pass_on)
    watchdog_s = notifier.watchdog_interval_s()
    sign_of_life_at = 0.0
    listening = 0
    failed = False
    while children or (due and not stopping):
        now = time.monotonic()
        if watchdog_s is not None and now >= sign_of_life_at:
            notifier.watchdog()
            sign_of_life_at = now + watchdog_s
        for worker in [worker for worker, at in due.items() if at <= now and not stopping]:
            del due[worker]
            start(worker)
        pid, status = os.waitpid(-1, os.WNOHANG) if children else (0, 0)
        if pid:
            ended = children.pop(pid, None)
            if stopping or ended is None:  # or a killed worker's helper: they come to a container's first process
                continue
            if listening < count:
                failed = True
                pass_on(signal.SIGTERM, None)
            else:
                print(f"huddle: worker {ended} ended with status {status}; restarting", file=sys.stderr)  # noqa: T201
                due[ended] = now + _RESTART_PAUSE_S
            continue
        if listening < count:
            listening += _newly_listening(read_end)
            if listening >= count:
                notifier.ready(f"serving with {count} workers")
        time.sleep(_POLL_S)
    return 1 if failed else 0


def _newly_listening(read_end: int) -> int:
    try:
        return len(os.read(read_end, 64))
    except BlockingIOError:
        return 0


def _work(worker: int, serve: Serve, listens: Callable[[], object]) -> None:
    """Be a worker; does not return. SIGTERM ends one that has not begun to serve; SIGHUP waits until it has."""
    _end_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGINT))
    os.environ.pop("NOTIFY_SOCKET", None)  # the parent speaks for all
    code = 1
    try:
        serve(worker, listens)
        code = 0
    except BaseException as error:
        print(f"huddle: worker {worker}: {error}", file=sys.stderr)  # noqa: T201
    finally:
        os._exit(code)


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies: workers that nobody supervises must not keep the port."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
