"""Programs that end with the test run, however that ends: SIGKILL runs no fixture's last lines."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

from tools.deadlines import scaled


@contextlib.contextmanager
def when_killed(*command: str, **settings: Any) -> Iterator[None]:
    """Run a command should this process be killed within the block.

    A guard waits at a pipe whose other end only this process holds: the kernel closes it with the process.
    """
    words = ["sh", "-c", 'read -r _; exec "$@"', "guard", *command]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True, **settings)
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        assert guard.stdin is not None
        guard.stdin.close()


@contextlib.contextmanager
def group(argv: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a process group of its own, of which nothing is left after the block."""
    process = subprocess.Popen(argv, start_new_session=True, **settings)
    with when_killed("kill", "-KILL", "--", f"-{process.pid}"):
        try:
            yield process
        finally:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(scaled(30))
            _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
