"""A pytest plugin: with `--passed FILE`, scenarios that passed before are not run again.

Scenarios of one file may stand on each other's machine. Those marked `groundwork` (a boot, a first deployment) run
again as long as any other scenario of their file is left.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tools.labs.progress import Passed


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--passed FILE`."""
    parser.addoption("--passed", type=Path, default=None, help="a file of scenarios that need not run again")


def pytest_configure(config: pytest.Config) -> None:
    """The part that writes works in the process that sees all reports."""
    path = config.getoption("--passed")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Writer(Passed(path)))


@pytest.hookimpl(trylast=True)  # after -m, which leaves out what is no lab's
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed."""
    path = config.getoption("--passed")
    if path is None:
        return
    passed, files = Passed(path).names, defaultdict(list)
    for item in items:
        files[item.nodeid.partition("::")[0]].append(item)
    kept = {item for file in files.values() for item in _left(file, passed)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _left(file: list[pytest.Item], passed: set[str]) -> list[pytest.Item]:
    new = [item for item in file if item.nodeid not in passed]
    if not new:
        return []
    return [item for item in file if item in new or item.get_closest_marker("groundwork")]


class _Writer:
    """Notes each scenario when its last phase has been reported."""

    def __init__(self, passed: Passed) -> None:
        self.passed = passed
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)
        if report.when == "teardown":
            self.passed.note(report.nodeid, passed=report.nodeid not in self.failed)
