"""`python -m huddle.local.supervisor DIRECTORY`: keeps engine and wrapper running until it is told to stop.

A program that ends is started again, but not for ever: one that dies young, or for the fourth time, ends the service,
and the log says so. The wrapper stops first, so that it can finish its streams while the engine is still there.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huddle.errors import ExitCode
from huddle.launch.supervise import Signals, longest_stop_s
from huddle.local.files import DRAIN_S, LocalPaths

YOUNG_S = 30.0
RESTARTS = 3
PAUSE_S = 2.0
_ORDER = ("wrapper", "engine")  # of stopping


@dataclass
class Program:
    """One of the two, and how often it was started again."""

    name: str
    argv: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    began_s: float = 0.0
    restarts: int = 0

    def start(self) -> None:
        """Start it; what it says is added to its log. In a session of its own: Ctrl+C reaches only the supervisor."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.began_s = time.monotonic()
        _say(f"{self.name} started, pid {self.process.pid}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when it takes longer than it may."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(longest_stop_s(DRAIN_S))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        _say(f"{self.name} stopped")


def objection(code: int, lived_s: float, restarts: int) -> str | None:
    """Why a program that ended is not started again; None when it is."""
    if code == ExitCode.BAD_INPUT:
        return "refused to start"
    if lived_s < YOUNG_S:
        return f"ended with {code} after {lived_s:.0f} s"
    if restarts >= RESTARTS:
        return f"ended with {code}, for the {restarts + 1}th time"
    return None


def supervise(programs: dict[str, Program]) -> ExitCode:
    """Run until a stop is asked for (OK) or a program cannot be kept running (FAILED)."""
    with Signals() as signals:
        try:
            for name in reversed(_ORDER):
                programs[name].start()
            while not signals.wait(None):
                for program in programs.values():
                    if program.process is None or (code := program.process.poll()) is None:
                        continue
                    if reason := objection(code, time.monotonic() - program.began_s, program.restarts):
                        _say(f"giving up: {program.name} {reason}; see {program.log}")
                        return ExitCode.FAILED
                    _say(f"{program.name} ended with {code}")
                    if signals.wait_for_stop(PAUSE_S):
                        return ExitCode.OK
                    program.restarts += 1
                    program.start()
            return ExitCode.OK
        finally:
            for name in _ORDER:
                programs[name].stop()


def _say(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


def main() -> None:
    """Run in the directory that `huddle local start` has filled."""
    os.umask(0o077)
    paths = LocalPaths(Path(sys.argv[1]))
    lines = json.loads(paths.programs.read_text(encoding="utf-8"))
    sys.exit(supervise({name: Program(name, lines[name], paths.log(name)) for name in _ORDER}))


if __name__ == "__main__":
    main()
