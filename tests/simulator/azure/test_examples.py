"""The faults that come with the simulator are valid, and do what their first line says."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.azure import faults

EXAMPLES = sorted((Path(faults.__file__).parents[1] / "examples").glob("*.yaml"))


def test_there_is_one_for_each_fault_of_the_runbook() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "busy",
        "fresh-subscription",
        "no-capacity",
        "no-rights",
        "no-trusted-launch",
        "node-does-not-serve",
        "quota",
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_valid_and_says_what_it_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    plan = faults.load(text)
    assert len(plan.faults) + (plan.subscription != faults.Subscription()) == 1
