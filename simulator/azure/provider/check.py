"""Check: fill what the provider fills, then validate against the SDK's types.

Facts: provider/pkg/provider/provider.go (applyDefaults, validateType, getDefaultLocation) of pulumi-azure-native.
One difference on purpose: a property that does not exist is refused here; the real provider drops it with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from simulator.azure.rules import rules_for
from simulator.azure.rules.names import violations
from simulator.azure.sdk import schema
from simulator.azure.sdk.naming import CREATE_BEFORE_DELETE, Autonaming, auto_name
from simulator.azure.sdk.paths import path_of
from simulator.azure.sdk.schema import ANY, Arr, EnumRef, Map, Obj, OneOf, Prim, Properties, ResourceSchema, TypeExpr
from simulator.plugin.values import UNKNOWN, Secret, reveal

_INTERNAL: Final = frozenset({CREATE_BEFORE_DELETE, "azureApiVersion"})
_PYTHON: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
}


@dataclass(frozen=True)
class CheckFailure:
    """One thing that is wrong with the inputs."""

    property: str
    reason: str


def apply_defaults(
    resource: ResourceSchema,
    olds: Mapping[str, Any],
    news: dict[str, Any],
    *,
    logical_name: str,
    seed: bytes,
    autonaming: Autonaming,
    default_location: Callable[[Any], Any],
) -> None:
    """Name, location and API version, in place, where the program is silent."""
    path = path_of(resource)
    if path.name_param in resource.inputs and news.get(path.name_param) is None:
        name = auto_name(path, logical_name, seed, autonaming, reveal(olds))
        if name is not None:
            news[path.name_param] = name.value
            if name.random:
                news[CREATE_BEFORE_DELETE] = True
    if "location" in resource.inputs and news.get("location") is None:
        location = olds.get("location") or default_location(news.get("resourceGroupName"))
        if location is not None:
            news["location"] = location
    if resource.api_version and news.get("azureApiVersion") is None:
        news["azureApiVersion"] = resource.api_version


def failures(resource: ResourceSchema, inputs: Mapping[str, Any]) -> list[CheckFailure]:
    """Everything that is wrong: required, unknown, mistyped and closed-enum properties, then the type's own rules."""
    plain = reveal({key: value for key, value in inputs.items() if key not in _INTERNAL})
    found = list(_object("", resource.inputs, plain))
    path = path_of(resource)
    # A name that the SDK calls optional (it can be automatic) is required once automatic naming is off.
    if path.name_param in resource.inputs and plain.get(path.name_param) is None:
        found.append(CheckFailure(path.name_param, f"missing required property '{path.name_param}'"))
    found += [CheckFailure(name, reason) for name, reason in violations(resource.key, plain)]
    found += [CheckFailure(name, reason) for name, reason in rules_for(resource.key).check(plain)]
    return found


def _object(context: str, properties: Properties, values: Mapping[str, Any]) -> Iterator[CheckFailure]:
    for name, prop in properties.items():
        path = f"{context}.{name}" if context else name
        value = values.get(name)
        if value is not None:
            yield from _value(path, prop.type, value)
        elif prop.required:
            hint = (
                ". Either set it explicitly or configure it with 'pulumi config set azure-native:location <value>'."
                if path == "location"
                else ""
            )
            yield CheckFailure(path, f"missing required property '{path}'{hint}")
    for name in values:
        if name not in properties:
            path = f"{context}.{name}" if context else name
            near = get_close_matches(name, properties, n=1)
            yield CheckFailure(
                path, f"property '{path}' does not exist" + (f"; did you mean '{near[0]}'?" if near else "")
            )


def _value(path: str, kind: TypeExpr, value: Any) -> Iterator[CheckFailure]:
    if value is UNKNOWN or value is None or kind == ANY:
        return
    if isinstance(kind, Prim):
        if not isinstance(value, _PYTHON[kind.kind]) or (isinstance(value, bool) and kind.kind != "bool"):
            yield CheckFailure(path, f"'{path}' should be of type '{_name(kind)}' but got {_kind_of(value)}")
    elif isinstance(kind, EnumRef):
        yield from _enum(path, kind, value)
    elif isinstance(kind, Obj):
        if isinstance(value, Mapping):
            yield from _object(path, schema.object_properties(kind), value)
        else:
            yield CheckFailure(path, f"'{path}' should be of type 'object' but got {_kind_of(value)}")
    elif isinstance(kind, Arr):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _value(f"{path}[{index}]", kind.item, item)
        elif not isinstance(value, Mapping):  # a "string set" is a mapping on the wire
            yield CheckFailure(path, f"'{path}' should be of type 'array' but got {_kind_of(value)}")
    elif isinstance(kind, Map):
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _value(f"{path}.{key}", kind.value, item)
    elif isinstance(kind, OneOf):
        yield from _one_of(path, kind, value)


def _one_of(path: str, kind: OneOf, value: Any) -> Iterator[CheckFailure]:
    attempts = [list(_value(path, option, value)) for option in kind.options]
    if all(attempts):
        yield from min(attempts, key=len)


def _enum(path: str, kind: EnumRef, value: Any) -> Iterator[CheckFailure]:
    if not isinstance(value, str):
        yield CheckFailure(path, f"'{path}' should be of type 'string' but got {_kind_of(value)}")
        return
    allowed = schema.enum_values(kind.module, kind.name)
    if not kind.open and allowed and value.lower() not in {item.lower() for item in allowed}:
        yield CheckFailure(path, f"'{path}' is '{value}', allowed are: {', '.join(allowed)}")


def _name(kind: Prim) -> str:
    return {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}[kind.kind]


def _kind_of(value: Any) -> str:
    if isinstance(value, Secret):
        return _kind_of(value.value)
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"
