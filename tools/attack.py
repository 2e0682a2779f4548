"""Run the attacks of attacks.toml and print, for each, what it sends and whether the wrapper withstood it.

    python -m tools.attack                        # all, on the hostile engine and on the nodes' real one
    python -m tools.attack --engines hostile F6   # some, without the real engine

The attacks are the tests that the table names: there is no second suite. Exit status 1 when one fell or did not run.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import UNIQUE, StrEnum, verify
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import BaseModel, ConfigDict, Field

from huddle import data_file

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_name("attacks.toml")
REAL_ENGINE_TESTS = "tests/serving/wrapper/real_vllm/"


@verify(UNIQUE)
class Kind(StrEnum):
    """What is abused."""

    FRAMING = "framing"
    FIELDS = "fields"
    SCHEMAS = "schemas"
    ENGINE = "engine answers"
    SLOW = "slow clients"
    CONNECTIONS = "connections"
    BACKGROUND = "background"


class Attack(BaseModel):
    """One row. `input`: the smallest that is known; `holds`: what happens; `tests`: files, or `file::test`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: Kind
    input: str = Field(min_length=1, max_length=160)
    holds: str = Field(min_length=1, max_length=160)
    tests: tuple[str, ...] = ()
    open: str = ""
    """Why nothing holds it off yet; then there are no tests."""


class _Table(BaseModel):
    attacks: dict[str, Attack]


def load() -> dict[str, Attack]:
    """The table; raises InputError when the file is wrong."""
    return data_file.load(TABLE, _Table).attacks


@verify(UNIQUE)
class Verdict(StrEnum):
    """How an attack ended."""

    HELD = "held"
    FELL = "FELL"
    OPEN = "open"
    NOT_RUN = "not run"


@dataclass
class Result:
    """What one attack did. `tests`: seconds by test, `fell`: the reason by test."""

    kind: str
    input: str
    happened: str
    verdict: Verdict
    tests: dict[str, float] = field(default_factory=dict)
    fell: dict[str, str] = field(default_factory=dict)


class Report(Protocol):
    """What is read of a pytest report."""

    nodeid: str
    outcome: str
    duration: float
    longrepr: Any


class Recorder:
    """A pytest plugin: keeps how each test ended."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Report) -> None:
        """One phase of a test has ended."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed[report.nodeid] = str(getattr(crash, "message", report.longrepr)).partition("\n")[0][:300]


def judge(attack: Attack, recorder: Recorder) -> Result:
    """The verdict on an attack, from the tests that have run."""
    mine = {node: took for node, took in recorder.seconds.items() if any(_covers(name, node) for name in attack.tests)}
    fell = {node: why for node, why in recorder.failed.items() if node in mine}
    if attack.open:
        verdict, happened = Verdict.OPEN, attack.open
    elif fell:
        verdict, happened = Verdict.FELL, next(iter(fell.values()))
    elif mine:
        verdict, happened = Verdict.HELD, attack.holds
    else:
        verdict, happened = Verdict.NOT_RUN, "none of its tests ran"
    return Result(attack.kind, attack.input, happened, verdict, mine, fell)


def _covers(name: str, node: str) -> bool:
    return node == name or node.startswith((f"{name}::", f"{name}["))


def table(results: Mapping[str, Result]) -> str:
    """The table for a terminal."""
    lines = []
    for kind in Kind:
        of_kind = {name: result for name, result in results.items() if result.kind == kind}
        if of_kind:
            lines.append(f"\n{kind}")
        for name, result in of_kind.items():
            seconds, count = sum(result.tests.values()), len(result.tests)
            lines.append(f"  {name:<12} {result.verdict:<8} {count:>4} tests {seconds:6.1f} s  {result.input}")
            lines.append(f"  {'':<12} {'':<8} {'':>19}  → {result.happened}")
            lines += [f"  {'':<12} {node}" for node in result.fell]
    verdicts = [result.verdict for result in results.values()]
    counts = (f"{verdicts.count(verdict)} {verdict}" for verdict in Verdict if verdict in verdicts)
    return "\n".join([*lines, "", ", ".join(counts)])


def run(attacks: Mapping[str, Attack], engines: str, words: Sequence[str]) -> dict[str, Result]:
    """Run the tests of these attacks; pytest speaks meanwhile."""
    tests = {name: None for attack in attacks.values() for name in attack.tests}
    if engines == "hostile":
        tests = {name: None for name in tests if not name.startswith(REAL_ENGINE_TESTS)}
    marks = [] if engines == "all" else ["-m", "not lab"]
    recorder = Recorder()
    if tests:
        pytest.main(["-q", "--no-header", "--no-summary", *marks, *words, *tests], plugins=[recorder])
    return {name: judge(attack, recorder) for name, attack in attacks.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    known = load()
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("attack", nargs="*", help="names of the table; all when left out")
    parser.add_argument(
        "--engines", choices=("hostile", "nodes", "all"), default="nodes",
        help="hostile: the fake one only; nodes: and the real one that nodes run; all: and the table's others",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    parser.add_argument("--workers", default="2", help="tests at a time")
    asked = parser.parse_args(arguments)
    if unknown := sorted(set(asked.attack) - set(known)):
        parser.error(f"there is no attack {', '.join(unknown)}; there are {', '.join(known)}")
    chosen = {name: attack for name, attack in known.items() if name in (asked.attack or known)}
    words = ["-n", asked.workers, "--dist", "loadfile"]
    results = run(chosen, asked.engines, words)
    print(table(results))
    if asked.json is not None:
        asked.json.write_text(json.dumps({name: asdict(result) for name, result in results.items()}, indent=1) + "\n")
    return int(any(result.verdict in (Verdict.FELL, Verdict.NOT_RUN) for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
