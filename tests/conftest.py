"""Set up for all tests: property tests without a wall clock, so that a busy machine fails nothing."""

from __future__ import annotations

import signal
import threading

import hypothesis
import pytest

# A runner started in the background ignores Ctrl-C, and what it starts would inherit that: tests send it on purpose.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50)
hypothesis.settings.load_profile("suite")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One real engine for the whole run: it takes 3 GB and a minute, so all its tests stay on one worker."""
    for item in items:
        if isinstance(item, pytest.Function) and {"real_vllm", "vllm_python"} & set(item.fixturenames):
            item.add_marker(pytest.mark.xdist_group("real-vllm"))
