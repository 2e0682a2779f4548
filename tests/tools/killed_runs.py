"""Runs killed at each line between the call of `leash.group` and its block: fails at the first that leaves its program.

A process of its own, since it forks: the program holds a pipe open, so the pipe's end tells that nothing is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from types import FrameType
from typing import Any

from tests import leash
from tools.deadlines import scaled

INSIDE = b"inside"


def run(moment: int, life: int) -> None:
    """Start a program with a child of its own and be killed at the given line, at the latest within the block."""
    me, lines = os.getpid(), 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if lines == moment:  # also in the fork that becomes the program: the run ends before the program is named
            with contextlib.suppress(ProcessLookupError):
                os.kill(me, signal.SIGKILL)
        return trace

    sys.settrace(trace)
    with leash.group(["sh", "-c", "sleep 600 & wait"], pass_fds=(life,)):
        sys.settrace(None)
        os.write(life, INSIDE)
        os.kill(me, signal.SIGKILL)


def until_nothing_is_left(life: int) -> bytes | None:
    """What the run said; none where a program still lives."""
    said = b""
    while select.select([life], [], [], scaled(30))[0]:
        if not (chunk := os.read(life, 64)):
            return said
        said += chunk
    return None


def main() -> None:
    moment, said = 0, b""
    while said != INSIDE:
        moment += 1
        reading, writing = os.pipe()
        if not (child := os.fork()):
            os.close(reading)
            run(moment, writing)
        os.close(writing)
        os.waitpid(child, 0)
        if (answer := until_nothing_is_left(reading)) is None:
            sys.exit(f"killed at line {moment}: the program is left")
        said = answer
        os.close(reading)
    sys.stdout.write(f"{moment}\n")


if __name__ == "__main__":
    main()
