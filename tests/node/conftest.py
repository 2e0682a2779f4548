"""Machines for the node tests: one lab a run, and a table of scenarios with their times at the end.

Guests are expensive (an emulated boot takes about a minute), so tests share them and run in the order of their file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping

import pytest

from cloud_init.bundle import Bundle
from tests.node.probes import QUICK_S, serves_again
from tools.node_lab.lab import Lab, Node

_SCENARIO = "scenario"
_SHOWN = "shown: "
"""Before the name of a property that the run's report shows."""


@pytest.fixture
def show(record_property: Callable[[str, object], None]) -> Callable[[str, object], None]:
    """Put something measured on a machine below the table of scenarios: its name, and a line or a mapping."""
    return lambda name, value: record_property(f"{_SHOWN}{name}", value)


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab for the tests of one file. Its folder, with the consoles' logs, stays when a test failed."""
    failed_before = request.session.testsfailed
    made = Lab()
    try:
        yield made
    finally:
        failed = request.session.testsfailed > failed_before
        made.close(keep=failed)
        if failed:
            sys.stderr.write(f"\nthe lab's folder is kept: {made.folder} (*/console.log, key)\n")


@pytest.fixture(scope="module")
def node(lab: Lab) -> Node:
    """The machine of a file about one; its first test switches it on."""
    return lab.node(1, [lab.disk("local0")])


@pytest.fixture(scope="module")
def first(lab: Lab) -> Bundle:
    """The bundle that serves at the beginning."""
    return lab.bundle(deadlines_s=QUICK_S)


@pytest.fixture
def serving(node: Node, first: Bundle) -> Iterator[None]:
    """The first bundle serves before a test, and must serve after what the test did."""
    wanted = first.digest
    yield
    assert node.serving() == wanted
    serves_again(node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Give each report its scenario: the first line of the test's docstring. It travels from workers to the table."""
    report = yield
    name = (item.function.__doc__ or item.name).strip().partition("\n")[0].rstrip(".")  # type: ignore[attr-defined]
    report.user_properties.append((_SCENARIO, name))
    return report


class _Table:
    """Results and seconds by scenario; the set-up (a boot) counts."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, float]] = {}
        self.shown: dict[str, object] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        self.shown |= {name.removeprefix(_SHOWN): of for name, of in properties.items() if name.startswith(_SHOWN)}
        name = str(properties.get(_SCENARIO, ""))
        if name:
            result, seconds = self.rows.get(name, ("", 0.0))
            worst = "failed" if report.failed or result == "failed" else report.outcome
            self.rows[name] = worst, seconds + report.duration
            if report.failed:  # at once: the rest of a run takes minutes
                sys.stderr.write(f"\n{name}: failed\n{report.longreprtext}\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.rows:
            return
        width = max(map(len, self.rows))
        terminalreporter.section("node lab")
        terminalreporter.write_line(f"{'scenario':<{width}} | result | seconds")
        for name, (result, seconds) in self.rows.items():
            terminalreporter.write_line(f"{name:<{width}} | {result:<6} | {seconds:7.1f}")
        total = sum(seconds for _, seconds in self.rows.values())
        terminalreporter.write_line(f"{len(self.rows)} scenarios, {total:.0f} s")
        for name, of in self.shown.items():
            terminalreporter.write_line(f"\n{name}:")
            for line in (f"{key:<32} {value}" for key, value in of.items()) if isinstance(of, Mapping) else [str(of)]:
                terminalreporter.write_line(f"  {line}")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Table())
