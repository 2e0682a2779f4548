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
    """Run a command should this process be killed within the block."""
    with _guard('read -r _; exec "$@"', *command, **settings):
        yield


@contextlib.contextmanager
def group(argv: Sequence[str], **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a process group of its own, of which nothing is left after the block.

    The guard is there before the program is, and the program names its group to it before it becomes the program.
    """
    with _guard('read -r group && ! read -r _ && exec kill -KILL -- "-$group"') as pipe:

        def announce() -> None:  # takes no lock, so that threads of this process do not matter
            os.write(pipe, b"%d\n" % os.getpid())

        process = subprocess.Popen(argv, start_new_session=True, preexec_fn=announce, **settings)  # noqa: PLW1509
        try:
            yield process
        finally:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(scaled(30))
            _signal(process, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def _guard(script: str, *words: str, **settings: Any) -> Iterator[int]:
    """A shell that reads what is written to the number given, and the end of it when this process ends.

    No program inherits that end of the pipe, so the kernel closes it with the process.
    """
    argv = ["sh", "-c", script, "guard", *words]
    guard = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True, **settings)
    assert guard.stdin is not None
    try:
        yield guard.stdin.fileno()
    finally:
        guard.kill()
        guard.wait()
        guard.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
