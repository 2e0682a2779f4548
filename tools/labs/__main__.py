"""Run labs by name, or those that the last merged change calls for."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

import pytest

from huddle.errors import InputError
from infra.engine.versions import ROOT
from tools.labs import change, progress, table
from tools.labs.table import Lab

SELECTED = "lab or groundwork"
"""The scenarios of a lab, and what they stand on even where `make test` runs that too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 when a lab failed, 2 when the table of labs is wrong."""
    try:
        labs = table.load()
    except InputError as error:
        say(str(error))
        return error.exit_code
    parser = argparse.ArgumentParser(prog="python -m tools.labs", description=__doc__)
    parser.add_argument("--workers", default="2", help="tests at a time")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="these labs, or all")
    run.add_argument("lab", nargs="*", help=", ".join(lab.name for lab in labs))
    changed = commands.add_parser("changed", help="those whose inputs the last merged change touched")
    changed.add_argument("--minutes", type=float, required=True, help="no lab begins that would not end within these")
    asked = parser.parse_args(arguments)
    if asked.command == "run":
        names = [lab.name for lab in labs]
        if unknown := sorted(set(asked.lab) - set(names)):
            parser.error(f"there is no lab {', '.join(unknown)}; there are {', '.join(names)}")
        return run_all([lab for lab in labs if lab.name in (asked.lab or [lab.name])], asked.workers)
    since = change.base()
    files = change.files(since)
    chosen = table.touched(labs, files)
    say(f"the last change (since {since[:10] if since else 'the beginning'}) touched {len(files)} files")
    say(f"labs that read them: {', '.join(lab.name for lab in chosen) or 'none'}")
    return run_all(chosen, asked.workers, within_s=asked.minutes * 60)


def run_all(labs: Sequence[Lab], workers: str, within_s: float = float("inf")) -> int:
    """One after the other, also after one has failed; those for which the time is too short are named, not run."""
    end, results = time.monotonic() + within_s, {}
    for lab in labs:
        if time.monotonic() + lab.minutes * 60 > end:
            results[lab.name] = f"left out: it takes {lab.minutes} minutes, there are fewer"
            continue
        say(f"{lab.name}: {lab.title} (some {lab.minutes} minutes)")
        results[lab.name] = _run(lab, workers)
    for name, result in results.items():
        say(f"{name:<12} {result}")
    return int("failed" in results.values())


def _run(lab: Lab, workers: str) -> str:
    passed = progress.file_of(lab)
    words = ["-m", "pytest", "-p", "tools.labs.resume", "--passed", str(passed), "-m", SELECTED, *lab.tests]
    words += [f"--ignore={other}" for other in lab.without]
    process = subprocess.Popen([sys.executable, *words, "-n", workers, "--dist", "loadfile"], cwd=ROOT)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.wait()  # Ctrl-C reached it as well: it switches its machines off
        raise
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and passed.is_file():
        return "has passed on this tree before"
    return "passed" if code == pytest.ExitCode.OK else "failed"


def say(line: str) -> None:
    """Print one line of progress at once."""
    print(f"labs: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; the same command goes on with what has not passed yet")
        sys.exit(130)
