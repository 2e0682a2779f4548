"""What a preview may know: inputs that come back as outputs; everything else is unknown.

Facts: provider/pkg/convert/previewOutputs.go of pulumi-azure-native.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator.azure.sdk import schema
from simulator.azure.sdk.schema import ANY, Arr, Map, Obj, OneOf, Properties, ResourceSchema, TypeExpr
from simulator.plugin.values import UNKNOWN, Secret

_STABLE: Final = ("name", "location")


def preview_outputs(
    resource: ResourceSchema, inputs: Mapping[str, Any], old_outputs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Outputs during a preview; of an existing resource, `name` and `location` are known too."""
    outputs = _object(resource.outputs, inputs)
    for name in _STABLE:
        if old_outputs and name in old_outputs and name in resource.outputs:
            outputs[name] = old_outputs[name]
    return outputs


def _object(properties: Properties, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(prop.type, inputs.get(name, UNKNOWN)) for name, prop in properties.items()}


def _value(kind: TypeExpr, value: Any) -> Any:
    if isinstance(value, Secret):
        return Secret(_value(kind, value.value))
    if value is UNKNOWN or value is None:
        return UNKNOWN
    if isinstance(kind, Arr) and isinstance(value, list):
        return [_value(kind.item, item) for item in value]
    if isinstance(kind, Obj) and isinstance(value, Mapping):
        return _object(schema.object_properties(kind), value)
    if isinstance(kind, Map) and isinstance(value, Mapping):
        return {key: _value(kind.value, item) for key, item in value.items()}
    if isinstance(kind, OneOf) or kind == ANY or not isinstance(value, (Mapping, list)):
        return value
    return UNKNOWN
