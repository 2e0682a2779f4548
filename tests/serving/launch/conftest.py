"""A node for each test that launches."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.launch.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "node")
    yield made
    made.clean_up()
