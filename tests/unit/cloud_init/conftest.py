"""A pretended node for the tests of the bundle's program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cloud_init import node as nodes
from tests.unit.cloud_init.huddle_apply import staged


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[nodes.FakeNode]:
    """A node on which nothing has been applied yet."""
    with nodes.running(tmp_path) as made:
        for name, value in made.environment.items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.fixture
def place(tmp_path: Path) -> staged.Place:
    """A store with one model, and a local disk with nothing on it."""
    return staged.made(tmp_path)
