"""What a rehearsal lets a destroyed stack leave: names of a protected one, which Azure keeps, and nothing else."""

from __future__ import annotations

from typing import cast

import pytest

from infra.operations.arm_subscription import Locked
from infra.operations.leaks import Leak
from infra.rehearsal import leftovers
from infra.rehearsal.sandbox import Sandbox
from tests.unit.builders import plan

NOBODY = cast(Sandbox, None)
NAME = Leak(Locked.VAULT.value, "kv", "dev", "wait")
DISK = Leak("Microsoft.Compute/disks", "/disk", "dev", "delete it")


@pytest.mark.parametrize(
    ("stack", "found", "left"),
    [
        ("dev", (), None),
        ("dev", (NAME,), "soft-deleted key vault kv"),
        ("prod", (NAME,), None),
        ("prod", (NAME, DISK), "Microsoft.Compute/disks /disk"),
    ],
)
def test_what_may_be_left(
    monkeypatch: pytest.MonkeyPatch, stack: str, found: tuple[Leak, ...], left: str | None
) -> None:
    monkeypatch.setattr(leftovers, "_plan", lambda _: plan(stack))
    sentence = None if left is None else f"nothing should be left, but Azure still has {left}"
    assert leftovers.problem(NOBODY, found) == sentence


def test_names_are_counted_apart() -> None:
    assert leftovers.told((NAME, DISK, NAME)) == "1 resources left, 2 names locked"
