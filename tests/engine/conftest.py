"""One engine and one sandbox for each life: opening one costs a second, an `up` three to five."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra import engine, program
from infra.rehearsal.sandbox import open_sandbox
from plan import stack_file
from tests.engine.life import Life
from tests.unit.older_types import leave_out_older_types

os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"


@pytest.fixture(scope="session")
def pulumi_engine() -> engine.PulumiEngine:
    return engine.locate()


@pytest.fixture(scope="module")
def open_life(tmp_path_factory: pytest.TempPathFactory, pulumi_engine: engine.PulumiEngine) -> Callable[..., Life]:
    def open_one(stack: str, root: Path = stack_file.ROOT) -> Life:
        directory = tmp_path_factory.mktemp(stack) / "project"
        life = Life(open_sandbox(stack, directory, root=root, run=without_older_types, chosen_engine=pulumi_engine))
        # The state is written at an operation's end, and not after each resource, which is a third of its time.
        workspace = life.sandbox.stack.workspace
        workspace.env_vars = {**workspace.env_vars, "PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
        return life

    return open_one


def without_older_types() -> None:
    """The project's program. `infra rehearse`, which has a test of its own, runs it with all that the SDK adds."""
    leave_out_older_types()
    program.main()


@pytest.fixture(scope="module")
def created(open_life: Callable[[str], Life]) -> Iterator[Life]:
    """The dev stack, up and running, shared by the tests of one module."""
    life = open_life("dev")
    life.up()
    yield life
