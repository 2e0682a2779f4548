"""Several processes behind one port (SO_REUSEPORT), for machines with cores to spare."""

import contextlib
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


def supervise(count: int, serve: Callable[[int, Callable[[], None]], None], notifier: Notifier) -> int:
    """Fork `count` workers and keep them running until SIGTERM; signals are passed on. Returns an exit code.

    `serve` runs in each child with its number and what to call when it listens. A worker that fails before all have
    started ends everything: its configuration would not be better the next time.
    """
    children: dict[int, int] = {}  # pid → worker
    stopping = False
    read_end, write_end = os.pipe()

    def pass_on(number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = stopping or number != signal.SIGHUP
        for pid in list(children):
            os.kill(pid, number)

    def listens() -> None:
        os.write(write_end, b"1")

    def start(worker: int) -> None:
        pid = os.fork()
        if pid == 0:
            _end_with_parent()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.environ.pop("NOTIFY_SOCKET", None)  # the parent speaks for all
            code = 1
            try:
                serve(worker, listens)
                code = 0
            except BaseException as error:
                print(f"huddle: worker {worker}: {error}", file=sys.stderr)  # noqa: T201
            finally:
                os._exit(code)
        children[pid] = worker

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    for worker in range(count):
        start(worker)
    os.set_blocking(read_end, False)
    listening = 0
    failed = False
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            worker = children.pop(pid)
            if not stopping and listening < count:
                failed = True
                pass_on(signal.SIGTERM, None)
            elif not stopping:
                print(f"huddle: worker {worker} ended with status {status}; restarting", file=sys.stderr)  # noqa: T201
                time.sleep(_RESTART_PAUSE_S)
                start(worker)
            continue
        if listening < count:
            with contextlib.suppress(BlockingIOError):
                listening += len(os.read(read_end, count))
            if listening >= count:
                notifier.ready(f"serving with {count} workers")
        time.sleep(0.05)
    return 1 if failed else 0


def _end_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies: workers that nobody supervises must not keep the port."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
