"""Starting nodes that Azure has deallocated: the nightly stop, an evicted spot VM, or somebody in the portal.

Paths, power states and the asynchronous answer are those of the Compute REST reference
(docs/facts/azure.md#power-states). Only `start` changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.operations import api_versions
from infra.operations.arm import Arm, ArmError, NotThereError

RUNNING, STARTING, GONE = "running", "starting", "gone"
_AS_THEY_ARE = (RUNNING, GONE)
PAUSE_S, DEADLINE_S = 5.0, 900.0


@dataclass(frozen=True)
class Started:
    """A node's power state before and after; `refusal` says why Azure did not start it."""

    name: str
    was: str
    now: str
    refusal: str | None = None


def state(arm: Arm, vm_id: str) -> str:
    """A VM's power state in Azure's word: running, starting, stopped, deallocating, deallocated; or unknown.

    Raises:
        ArmError: Azure refused or did not answer.
    """
    return state_in(arm.get(f"{vm_id}/instanceView", api_versions.COMPUTE))


def state_in(view: Mapping[str, Any]) -> str:
    """The same from a VM's instance view."""
    codes = [str(status.get("code")) for status in view.get("statuses") or []]
    return next((code.partition("/")[2] for code in codes if code.startswith("PowerState/")), "unknown")


def start(
    arm: Arm,
    nodes: Mapping[str, str],
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> list[Started]:
    """Start every node that does not run, all at once, and wait. `nodes` maps names to ARM ids.

    A node that Azure refuses to start, for lack of a free machine say, does not keep the others from starting.
    """
    before: dict[str, str] = {}
    operations: dict[str, str | None] = {}
    refusals: dict[str, str] = {}
    for name, vm_id in nodes.items():
        try:
            before[name] = state(arm, vm_id)
        except NotThereError as error:
            before[name], refusals[name] = GONE, str(error)
    for name, vm_id in nodes.items():
        if before[name] not in _AS_THEY_ARE:
            try:
                operations[name] = arm.begin(vm_id, "start", api_versions.COMPUTE)
            except ArmError as error:
                refusals[name] = str(error)
    deadline = clock() + DEADLINE_S
    for name, operation in operations.items():
        try:
            while operation is not None and not arm.ended(operation):
                if clock() > deadline:
                    refusals[name] = "Azure has not started it within 15 minutes; look at it in the portal."
                    break
                sleep(PAUSE_S)
        except ArmError as error:
            refusals[name] = str(error)
    return [
        Started(
            name, before[name], before[name] if before[name] in _AS_THEY_ARE else state(arm, vm_id), refusals.get(name)
        )
        for name, vm_id in nodes.items()
    ]
