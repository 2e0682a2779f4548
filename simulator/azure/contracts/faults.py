"""What is wrong with a body, in the order of Microsoft's types. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import UNIQUE, StrEnum, verify
from typing import Any, Final

from simulator.azure.contracts.shapes import Contract, ObjectShape, Shape
from simulator.plugin.values import UNKNOWN

_PYTHON: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "text": ((str,), "a text"),
    "choice": ((str,), "a text"),
    "number": ((int, float), "a number"),
    "flag": ((bool,), "true or false"),
    "list": ((list,), "a list"),
    "map": ((Mapping,), "an object"),
    "object": ((Mapping,), "an object"),
    "variant": ((Mapping,), "an object"),
}
_SHOWN: Final = 12
"""Allowed values in a sentence."""


@verify(UNIQUE)
class Kind(StrEnum):
    """How a body can be wrong."""

    UNKNOWN = "unknown property"
    MISSING = "missing property"
    READ_ONLY = "read-only property"
    TYPE = "wrong type"
    VALUE = "wrong value"
    LENGTH = "wrong length"
    PATTERN = "wrong characters"
    RANGE = "out of range"


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong; `path` is dotted, with indices in brackets."""

    path: str
    kind: Kind
    sentence: str
    value: Any = None

    def __str__(self) -> str:
        return f"'{self.path}' {self.sentence}"


def faults(contract: Contract, name: Any, body: Mapping[str, Any]) -> list[Fault]:
    """Everything that is wrong with a resource's name and body; of what is only known after `up`, nothing."""
    return list(_object(contract, contract.body, "", {"name": name, **body}))


def _object(contract: Contract, shape: ObjectShape, place: str, values: Mapping[str, Any]) -> Iterator[Fault]:
    for key, one in shape.properties.items():
        if one.required and values.get(key) is None:
            yield Fault(_inside(place, key), Kind.MISSING, "is required and missing")
    for key, value in values.items():
        path = _inside(place, key)
        known = shape.properties.get(key, shape.others)
        if known is None:
            near = get_close_matches(key, shape.properties, n=1)
            yield Fault(path, Kind.UNKNOWN, "does not exist" + (f"; did you mean '{near[0]}'?" if near else ""))
        elif known.read_only:
            yield Fault(path, Kind.READ_ONLY, "is read-only: Azure alone writes it")
        elif value is not None:
            yield from _value(contract, known, path, value)


def _value(contract: Contract, shape: Shape, path: str, value: Any) -> Iterator[Fault]:
    if value is UNKNOWN:
        return
    if not _fits(shape, value):
        yield Fault(path, Kind.TYPE, f"must be {_PYTHON[shape.kind][1]}")
        return
    match shape.kind:
        case "object":
            yield from _object(contract, contract.shapes[shape.name], path, value)
        case "variant":
            yield from _variant(contract, shape, path, value)
        case "list":
            yield from _size(shape, path, len(value), "entries")
            for index, item in enumerate(value):
                yield from _value(contract, shape.of or Shape(), f"{path}[{index}]", item)
        case "map":
            for key, item in value.items():
                yield from _value(contract, shape.of or Shape(), _inside(path, key), item)
        case "choice":
            if value.lower() not in {one.lower() for one in shape.values}:
                yield Fault(path, Kind.VALUE, f"has the value '{value}'; allowed: {_listed(shape.values)}", value)
        case "text":
            yield from _size(shape, path, len(value), "characters")
            if shape.pattern and not re.search(shape.pattern, value):
                yield Fault(path, Kind.PATTERN, f"must match {shape.pattern}")
        case "number":
            if (shape.min is not None and value < shape.min) or (shape.max is not None and value > shape.max):
                yield Fault(path, Kind.RANGE, f"is {value}; allowed: {_limits(shape)}")


def _variant(contract: Contract, shape: Shape, path: str, value: Mapping[str, Any]) -> Iterator[Fault]:
    which, place = value.get(shape.by), _inside(path, shape.by)
    if which is None:
        yield Fault(place, Kind.MISSING, "is required and missing")
    elif which not in shape.variants:
        yield Fault(place, Kind.VALUE, f"has the value '{which}'; allowed: {_listed(tuple(shape.variants))}", which)
    else:
        yield from _object(contract, contract.shapes[shape.variants[which]], path, value)


def _fits(shape: Shape, value: object) -> bool:
    if shape.kind == "any":
        return True
    return isinstance(value, _PYTHON[shape.kind][0]) and not (isinstance(value, bool) and shape.kind == "number")


def _size(shape: Shape, path: str, length: int, unit: str) -> Iterator[Fault]:
    if length < (shape.min or 0) or (shape.max is not None and length > shape.max):
        yield Fault(path, Kind.LENGTH, f"has {length} {unit}; allowed: {_limits(shape)}")


def _limits(shape: Shape) -> str:
    if shape.max is None:
        return f"at least {shape.min}"
    return f"{shape.min} to {shape.max}" if shape.min is not None else f"at most {shape.max}"


def _listed(values: tuple[str, ...]) -> str:
    more = len(values) - _SHOWN
    return ", ".join(values[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _inside(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key
