"""From the SDK's inputs to the body that is sent.

azure-native moves what ARM keeps in `properties` one level up and writes every name in camel case
(docs/facts/pulumi.md#names-and-places-of-inputs). Its metadata is not public; the shapes show the way back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator.azure.contracts.shapes import Contract, ObjectShape, Shape

INSIDE: Final = "properties"
_RENAMED: Final = {"type": "apiType"}
"""A name that would say two things beside each other."""


def body_of(contract: Contract, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The body for inputs whose path parameters are taken out already."""
    return _object(contract, contract.body, inputs)


def _object(contract: Contract, shape: ObjectShape, values: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    inside = shape.properties.get(INSIDE)
    inner = contract.shapes.get(inside.name) if inside else None
    for key, value in values.items():
        if (own := _own_name(key, shape)) is not None:
            made[own] = _value(contract, shape.properties[own], value)
        elif inner is not None and (own := _own_name(key, inner)) is not None:
            made.setdefault(INSIDE, {})[own] = _value(contract, inner.properties[own], value)
        else:
            made[key] = _value(contract, shape.others, value) if shape.others else value
    return made


def _own_name(key: str, shape: ObjectShape) -> str | None:
    """The name in the body. What only Azure writes can't be meant."""
    for name, one in shape.properties.items():
        if not one.read_only and key in (name, _sdk_name(name), _RENAMED.get(name)):
            return name
    return None


def _sdk_name(name: str) -> str:
    """`Application_Type` → `applicationType`."""
    joined = name.replace("_", "")
    return f"{joined[:1].lower()}{joined[1:]}"


def _value(contract: Contract, shape: Shape, value: Any) -> Any:
    if shape.kind == "object" and isinstance(value, Mapping):
        return _object(contract, contract.shapes[shape.name], value)
    if shape.kind == "list" and shape.of and isinstance(value, list):
        return [_value(contract, shape.of, item) for item in value]
    if shape.kind == "map" and shape.of and isinstance(value, Mapping):
        return {key: _value(contract, shape.of, item) for key, item in value.items()}
    if shape.kind == "map" and isinstance(value, list):  # a set of ids, which ARM writes as a mapping to nothing
        return {item: {} for item in value}
    return value
