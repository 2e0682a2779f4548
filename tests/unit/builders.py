"""Plans and scopes for component tests, built the way the product builds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi

from components.scope import StackScope
from infra.program import plan_of
from plan import stack_file
from plan.azure.model import AzurePlan
from simulator.azure.sdk.paths import SUBSCRIPTION
from tests.unit.recording import CANARY


@cache
def _written(stack: str) -> dict[str, Any]:
    return stack_file.read(stack)


def plan(stack: str = "dev", **changes: Any) -> AzurePlan:
    """The plan of a stack file with some settings changed, or dropped by None: `plan("prod", nodes={"count": 3})`."""
    return _plan(stack, json.dumps(changes))


@cache
def _plan(stack: str, changes: str) -> AzurePlan:
    values = dict(_written(stack))
    for key, value in json.loads(changes).items():
        full = f"{stack_file.PROJECT}:{key}"
        old = values.get(full)
        both = {**old, **value} if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        values[full] = {name: item for name, item in both.items() if item is not None} if both is not value else value
    return plan_of(stack_file.from_values(values, stack), stack)


def scope(built: AzurePlan) -> StackScope:
    """The scope that the Azure target would hand to every component."""
    return StackScope(
        resource_group_name=built.names.resource_group,
        location=built.location,
        tags=built.tags,
        names=built.names,
        protect=built.protect,
    )


def secret(name: str) -> pulumi.Output[str]:
    """A secret whose value is easy to find where it must not be."""
    return pulumi.Output.secret(f"{CANARY}-{name}")


def arm_id(kind: str, name: str) -> str:
    """An id for something that the component under test only refers to: `arm_id("Microsoft.Network/x", "vnet")`."""
    return f"/subscriptions/{SUBSCRIPTION}/resourceGroups/group/providers/{kind}/{name}"
