"""Outputs: inputs as the service gives them back, plus what it fills in itself."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from simulator.azure.provider.diff import normal_location
from simulator.azure.rules import rules_for
from simulator.azure.rules.base import Op
from simulator.azure.state.redaction import derived
from simulator.plugin.values import fill


def build_outputs(op: Op) -> dict[str, Any]:
    """Everything a GET right after this request would show, by SDK names."""
    rules = rules_for(op.key)
    known = op.schema.outputs
    outputs: dict[str, Any] = {key: deepcopy(value) for key, value in op.inputs.items() if key in known}
    fill(outputs, {key: value for key, value in rules.defaults.items() if key in known})
    outputs["name"] = op.name
    outputs["type"] = op.inputs["type"] if isinstance(op.inputs.get("type"), str) else op.path.arm_type
    if op.schema.api_version:
        outputs["azureApiVersion"] = op.schema.api_version
    if "location" in known and op.location:
        outputs["location"] = normal_location(outputs.get("location") or op.location)
    if "etag" in known:
        outputs["etag"] = f'W/"{derived(op.state.salt, op.id, str(op.now), length=16)}"'
    if "provisioningState" in known:
        outputs["provisioningState"] = "Updating" if op.old else "Creating"
    rules.outputs(op, outputs)
    for pattern in rules.hidden:
        _hide(outputs, pattern.split("."))
    return {key: value for key, value in outputs.items() if key in known and value is not None}


def _hide(value: Any, path: list[str]) -> None:
    head, *rest = path
    if isinstance(value, list):
        for item in value:
            _hide(item, path[1:] if head == "*" else path)
    elif isinstance(value, Mapping) and isinstance(value, dict):
        for key in fnmatch.filter(list(value), head):
            if rest:
                _hide(value[key], rest)
            else:
                value.pop(key)
