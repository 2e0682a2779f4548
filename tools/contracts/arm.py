"""Types of Azure Resource Manager, from a checkout of github.com/Azure/bicep-types-az: facts only, no descriptions.

There, a file of each namespace and API version lists its types, which name each other by number. Here, each object has
its name and only what a request may hold is kept: of what Azure alone writes, just that it does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REQUIRED, READ_ONLY = 1, 2
"""Bits of `flags` (docs/facts/azure.md#types-of-azure-resource-manager)."""
_LIMITS = {"minLength": "min", "maxLength": "max", "minValue": "min", "maxValue": "max", "pattern": "pattern"}


class UnknownFormError(Exception):
    """The source has something that this program does not know; nothing is guessed."""


def distil(checkout: Path, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Shapes of each wanted type (`Microsoft.Compute/disks@2024-03-02`), by namespace and version.

    Raises:
        UnknownFormError: a type is not there, or has a form that is new.
    """
    groups: dict[str, list[str]] = {}
    for full in sorted(wanted):
        name, _, version = full.partition("@")
        groups.setdefault(f"{name.split('/')[0]}@{version}", []).append(full)
    return {group: _group(checkout, group, names) for group, names in groups.items()}


def _group(checkout: Path, group: str, names: list[str]) -> dict[str, Any]:
    namespace, _, version = group.lower().partition("@")
    shapes: dict[str, Any] = {}
    left = set(names)
    for path in sorted(checkout.glob(f"generated/*/{namespace}/{version}/types.json")):
        source = _Source(json.loads(path.read_text(encoding="utf-8")), shapes)
        for entry in source.entries:
            if entry["$type"] == "ResourceType" and entry["name"] in left:
                left.remove(entry["name"])
                source.resource(entry)
    if left:
        raise UnknownFormError(f"{', '.join(sorted(left))} is in no file of {checkout.name} for {group}")
    return dict(sorted(shapes.items()))


@dataclass
class _Source:
    """One file; objects that are met become `shapes`."""

    entries: list[dict[str, Any]]
    shapes: dict[str, Any]
    names: dict[int, str] = field(default_factory=dict)

    def resource(self, entry: Mapping[str, Any]) -> None:
        body = self.entries[_number(entry["body"])]
        self.shapes[entry["name"].partition("@")[0]] = self._object(body)

    def shape(self, reference: Mapping[str, str]) -> dict[str, Any]:
        number = _number(reference)
        entry = self.entries[number]
        limits = {ours: entry[theirs] for theirs, ours in _LIMITS.items() if theirs in entry}
        match entry["$type"]:
            case "StringType":
                return {"is": "text", **limits}
            case "IntegerType":
                return {"is": "number", **limits}
            case "BooleanType":
                return {"is": "flag"}
            case "AnyType":
                return {"is": "any"}
            case "StringLiteralType":
                return {"is": "choice", "values": [entry["value"]]}
            case "UnionType":
                return self._choice(entry)
            case "ArrayType":
                return {"is": "list", "of": self.shape(entry["itemType"]), **limits}
            case "ObjectType" if not entry["properties"] and "additionalProperties" in entry:
                return {"is": "map", "of": self.shape(entry["additionalProperties"])}
            case "ObjectType":
                return {"is": "object", "name": self._named(number, entry)}
            case "DiscriminatedObjectType":
                return {"is": "variant", "by": entry["discriminator"], "variants": self._variants(entry)}
            case other:
                raise UnknownFormError(f"#/{number} is a {other}")

    def _choice(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        options = [self.entries[_number(option)] for option in entry["elements"]]
        values = [option["value"] for option in options if option["$type"] == "StringLiteralType"]
        others = {option["$type"] for option in options} - {"StringLiteralType"}
        if others - {"StringType"}:
            raise UnknownFormError(f"a choice has {', '.join(sorted(others))}")
        return {"is": "choice", "values": values, **({"open": True} if others else {})}

    def _variants(self, entry: Mapping[str, Any]) -> dict[str, str]:
        """The object for each value of the property that tells them apart, with what all of them have."""
        made = {}
        for value, reference in sorted(entry["elements"].items()):
            one = self.entries[_number(reference)]
            whole = {**one, "properties": {**entry["baseProperties"], **one["properties"]}}
            made[value] = self._named(_number(reference), whole)
        return made

    def _named(self, number: int, entry: Mapping[str, Any]) -> str:
        """The object's name; another one of the same name gets a number. Entered before its parts: they may name it."""
        if number not in self.names:
            taken = sum(known == entry["name"] or known.startswith(f"{entry['name']}~") for known in self.shapes)
            name = self.names[number] = f"{entry['name']}~{taken + 1}" if taken else entry["name"]
            self.shapes[name] = {}
            self.shapes[name] = self._object(entry)
        return self.names[number]

    def _object(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {"properties": {}}
        for key, one in sorted(entry["properties"].items()):
            if one["flags"] & READ_ONLY:
                made["properties"][key] = {"read_only": True}
            else:
                mark = {"required": True} if one["flags"] & REQUIRED else {}
                made["properties"][key] = {**self.shape(one["type"]), **mark}
        if "additionalProperties" in entry:
            made["others"] = self.shape(entry["additionalProperties"])
        return made


def _number(reference: Mapping[str, str]) -> int:
    return int(reference["$ref"].removeprefix("#/"))


def written(source: Mapping[str, str], shapes: Mapping[str, Any]) -> str:
    """The file: a line for each property, so that a newer version shows as what changed."""
    lines = [f' "{key}": {json.dumps(value)},' for key, value in source.items()]
    objects = []
    for name, shape in shapes.items():
        properties = ",\n".join(f"   {json.dumps(key)}: {json.dumps(one)}" for key, one in shape["properties"].items())
        others = f', "others": {json.dumps(shape["others"])}' if "others" in shape else ""
        objects.append(f'  {json.dumps(name)}: {{"properties": {{\n{properties}\n  }}{others}}}')
    return "{\n" + "\n".join(lines) + '\n "shapes": {\n' + ",\n".join(objects) + "\n }\n}\n"
