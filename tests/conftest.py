"""Set up for all tests: property tests without a wall clock, so that a busy machine fails nothing."""

from __future__ import annotations

import signal
import threading

import hypothesis
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tools.deadlines import scaled

# A runner started in the background ignores Ctrl-C, and what it starts would inherit that: tests send it on purpose.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)
hypothesis.settings.load_profile("suite")

LONGEST_FIRST = (
    "tests/node/",
    "tests/serving/wrapper/real_vllm/",
    "tests/engine/test_gateway_tiers.py",
    "tests/engine/",
    "tests/serving/client/",
    "tests/simulator/azure/test_real_engine.py",
    "tests/unit/cloud_init/huddle_apply/test_apply_failures.py",
    "tests/serving/publish/",
    "tests/unit/infra/test_cli.py",
    "tests/serving/",
    "tests/simulator/apim_policies/",
    "tests/unit/components/",
    "tests/unit/cloud_init/",
)
"""What takes a minute or more, so that no worker is left with it at the end while others are idle."""

ONE_WORKER = ("tests/serving/wrapper/real_vllm/",)
"""Folders whose files one worker takes together: they share an engine, which each worker would start for itself."""


class _ByFile(LoadFileScheduling):
    """One file to a worker, or one such folder."""

    def _split_scope(self, nodeid: str) -> str:
        of_file = super()._split_scope(nodeid)
        return next((folder for folder in ONE_WORKER if nodeid.startswith(folder)), of_file)


@pytest.hookimpl(optionalhook=True)  # also where xdist is switched off
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _ByFile | None:
    return _ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        return next((at for at, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)), len(LONGEST_FIRST))

    items.sort(key=place)
    limit_s = scaled(float(items[0].config.getini("timeout"))) if items else 0
    for item in items:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(limit_s))
