"""One engine and one sandbox for each life: opening one costs a second, an `up` three to five."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from infra import engine
from infra.rehearsal.sandbox import open_sandbox
from tests.engine.life import Life

os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"


@pytest.fixture(scope="session")
def pulumi_engine() -> engine.Engine:
    return engine.locate()


@pytest.fixture(scope="module")
def open_life(tmp_path_factory: pytest.TempPathFactory, pulumi_engine: engine.Engine) -> Callable[[str], Life]:
    def open_one(stack: str) -> Life:
        directory = tmp_path_factory.mktemp(stack) / "project"
        return Life(open_sandbox(stack, directory, chosen_engine=pulumi_engine))

    return open_one


@pytest.fixture(scope="module")
def created(open_life: Callable[[str], Life]) -> Iterator[Life]:
    """The dev stack, up and running, shared by the tests of one module."""
    life = open_life("dev")
    life.up()
    yield life
