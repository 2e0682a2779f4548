"""Commands on this machine."""

import os
import subprocess
import threading
from collections.abc import Mapping
from typing import IO, Any

from simulator.command_provider.command import Result, Say, failure

DEFAULT_INTERPRETER = ("/bin/sh", "-c")


def run(command: str, inputs: Mapping[str, Any], automatic: Mapping[str, str], say: Say) -> Result:
    """Run *command* by the interpreter; CommandFailedError when it ends badly."""
    interpreter = inputs.get("interpreter") or DEFAULT_INTERPRETER
    environment = {**os.environ, **automatic, **(inputs.get("environment") or {})}
    order: list[str] = []
    with subprocess.Popen(
        [*interpreter, command],
        cwd=inputs.get("dir"),
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        collected: dict[str, list[str]] = {"stdout": [], "stderr": []}
        readers = [
            threading.Thread(target=_collect, args=(process.stdout, collected["stdout"], order, say)),
            threading.Thread(target=_collect, args=(process.stderr, collected["stderr"], order, say)),
        ]
        for reader in readers:
            reader.start()
        if process.stdin:
            try:
                process.stdin.write(inputs.get("stdin") or "")
                process.stdin.close()
            except BrokenPipeError:
                pass  # a command need not read what it is given
        for reader in readers:
            reader.join()
    if process.returncode:
        raise failure(command, f"exit status {process.returncode}", "".join(order))
    return Result(*("".join(lines).removesuffix("\n") for lines in collected.values()))


def _collect(stream: IO[str] | None, into: list[str], order: list[str], say: Say) -> None:
    for line in stream or ():
        into.append(line)
        order.append(line)
        say(line.rstrip("\n"))
