"""Bundles for the lab: what the product builds for a stack, with the few things bent that an emulated machine needs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from cloud_init import bundle
from cloud_init.bundle import Bundle
from cloud_init.bundle.services import Unit
from infra import program
from plan import stack_file
from plan.azure.model import AzurePlan
from tools.node_lab import wheels

ENGINE_LOCK = "requirements/engine.lock"
JUPYTER_LOCK = "requirements/jupyter.lock"


def plan(key: str, stack: str = "dev", **changes: Any) -> AzurePlan:
    """The plan of a stack whose operator has this public key. `changes`: sections of the stack file, merged."""
    values = stack_file.read(stack)
    for section, change in {"access": {"ssh_public_keys": [key]}, **changes}.items():
        name = f"{stack_file.PROJECT}:{section}"
        old = values.get(name)
        values[name] = {**old, **change} if isinstance(old, Mapping) and isinstance(change, Mapping) else change
    made = program.plan_of(stack_file.from_values(values, stack), stack)
    assert isinstance(made, AzurePlan)
    return dataclasses.replace(made, rejoin_s=1)  # no gateway is in front


def build(
    of: AzurePlan,
    libraries: wheels.Wheels,
    *,
    engine: str = "",
    deadlines_s: Mapping[str, int] | None = None,
    facts: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Bundle:
    """The bundle of a plan.

    `engine`: how the stand-in behaves (stubs/vllm/engine.py); `deadlines_s` and `facts` change each node.json, `files`
    the bundle's files.
    """
    made = dict(bundle.build(of).files)
    made[ENGINE_LOCK] = libraries.lock
    if JUPYTER_LOCK in made:
        made[JUPYTER_LOCK] = libraries.jupyter_lock
    for node in of.nodes:
        own = f"nodes/{node.name}"
        known = json.loads(made[f"{own}/node.json"])
        known |= {"python": wheels.PYTHON, **(facts or {})}
        known["deadlines_s"] |= deadlines_s or {}
        if engine:
            made[f"{own}/engine.env"] += f"LAB_ENGINE={engine}\n".encode()
            _restart(known, Unit.VLLM.of(0), engine)
        made[f"{own}/node.json"] = (json.dumps(known, indent=1) + "\n").encode()
    return bundle.seal({**made, **(files or {})})


def _restart(node: dict[str, Any], unit: str, because: str) -> None:
    """Another environment file is another engine: the fingerprint that the product would have computed differs."""
    for service in node["services"]:
        if service["unit"] == unit:
            service["restart"] = f"{service['restart']}-{because}"
