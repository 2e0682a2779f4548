"""Refresh: new inputs from old inputs and the difference between old and new outputs.

Facts: provider/pkg/provider/provider.go (Read), diff.go (applyDiff) and convert/sdkOutputsToSdkInputs.go of
pulumi-azure-native: only what changed between the outputs in state and the outputs read now is copied into the inputs,
so that values Azure fills in do not show up as changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from simulator.azure.sdk import schema
from simulator.azure.sdk.schema import Arr, Map, Obj, OneOf, Properties, ResourceSchema, TypeExpr
from simulator.plugin.values import Secret, reveal

# Collections that can also be managed as resources of their own: unset ones are neither sent nor read into the inputs.
SUBRESOURCES: Final[dict[str, tuple[str, ...]]] = {
    "network:VirtualNetwork": ("subnets", "virtualNetworkPeerings"),
    "network:NetworkSecurityGroup": ("securityRules",),
    "network:RouteTable": ("routes",),
    "keyvault:Vault": ("properties.accessPolicies",),
}


def refreshed_inputs(
    resource: ResourceSchema,
    old_inputs: Mapping[str, Any],
    old_outputs: Mapping[str, Any],
    new_outputs: Mapping[str, Any],
) -> dict[str, Any]:
    """Inputs after a refresh."""
    visible = deepcopy(dict(new_outputs))
    for path in SUBRESOURCES.get(resource.key, ()):
        _drop_unset(visible, old_inputs, path.split("."))
    before = _project(resource.inputs, old_outputs)
    after = _project(resource.inputs, visible)
    return _apply(dict(old_inputs), before, after)


def imported_inputs(
    resource: ResourceSchema, path_values: Mapping[str, str], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Inputs for a resource that is imported: the id's parts and every writable output."""
    inputs = {**_project(resource.inputs, outputs), **path_values}
    if resource.api_version:
        inputs["azureApiVersion"] = resource.api_version
    return inputs


def _drop_unset(outputs: dict[str, Any], inputs: Mapping[str, Any], path: list[str]) -> None:
    head, *rest = path
    if not rest:
        if head not in inputs:
            outputs.pop(head, None)
    elif isinstance(outputs.get(head), dict) and isinstance(inputs.get(head), Mapping):
        _drop_unset(outputs[head], inputs[head], rest)


def _project(properties: Properties, outputs: Mapping[str, Any]) -> dict[str, Any]:
    projected = {}
    for name, prop in properties.items():
        if outputs.get(name) is not None:
            projected[name] = _value(prop.type, outputs[name])
    return projected


def _value(kind: TypeExpr, value: Any) -> Any:
    if isinstance(value, Secret):
        return Secret(_value(kind, value.value))
    if isinstance(kind, Obj) and isinstance(value, Mapping):
        return _project(schema.object_properties(kind), value)
    if isinstance(kind, Arr) and isinstance(value, list):
        return [_value(kind.item, item) for item in value]
    if isinstance(kind, Map) and isinstance(value, Mapping):
        return {key: _value(kind.value, item) for key, item in value.items()}
    if isinstance(kind, OneOf) and isinstance(value, Mapping):
        shapes = [_value(option, value) for option in kind.options]
        return max(shapes, key=len, default=value)
    return value


def _same(left: Any, right: Any) -> bool:
    return bool(reveal(left) == reveal(right))


def _apply(base: dict[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in base.items() if not (name in before and name not in after)}
    for name, value in after.items():
        if name not in before:
            result[name] = value
        elif not _same(before[name], value):
            result[name] = _apply_value(base[name], before[name], value) if name in base else value
    return result


def _apply_value(base: Any, before: Any, after: Any) -> Any:
    if isinstance(base, dict) and isinstance(before, Mapping) and isinstance(after, Mapping):
        return _apply(base, before, after)
    if isinstance(base, list) and isinstance(before, list) and isinstance(after, list):
        return [
            _apply_value(base[index], before[index], item) if index < min(len(base), len(before)) else item
            for index, item in enumerate(after)
        ]
    return after
