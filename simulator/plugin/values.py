"""Property values on the wire and in Python.

Pulumi marks secrets and unknowns inside a protobuf Struct with signature keys
(sdk/python/lib/pulumi/runtime/rpc.py names them); this module turns them into `Secret` and `UNKNOWN` and back.
Everything else is plain JSON-like data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import struct_pb2

SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # a type mark, not a credential
UNKNOWN_SENTINEL: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

Path = tuple[str | int, ...]


class Unknown:
    """A value that is only known after `up`."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN: Final = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value the engine must keep encrypted."""

    value: Any

    def __repr__(self) -> str:
        return "<secret>"


def from_wire(value: struct_pb2.Struct | None) -> dict[str, Any]:
    """Decode a Struct; nulls are dropped, as the azure-native provider does (SkipNulls)."""
    if value is None:
        return {}
    return {key: _decode(item) for key, item in value.fields.items() if item.WhichOneof("kind") != "null_value"}


def _decode(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _decode_struct(value.struct_value)
    if kind == "list_value":
        return [_decode(item) for item in value.list_value.values]
    if kind == "string_value":
        text: str = value.string_value
        return UNKNOWN if text == UNKNOWN_SENTINEL else text
    if kind == "number_value":
        number: float = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "bool_value":
        return bool(value.bool_value)
    return None


def _decode_struct(value: struct_pb2.Struct) -> Any:
    fields = value.fields
    if SIGNATURE_KEY in fields and fields[SIGNATURE_KEY].string_value == SECRET_SIGNATURE:
        inner = _decode(fields["value"]) if "value" in fields else None
        return inner if isinstance(inner, Secret) else Secret(inner)
    return from_wire(value)


def to_wire(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Encode a mapping; `None` items are dropped."""
    struct = struct_pb2.Struct()
    for key, value in values.items():
        if value is not None:
            struct.fields[key].CopyFrom(_encode(value))
    return struct


def _encode(value: Any) -> struct_pb2.Value:
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if value is UNKNOWN:
        return struct_pb2.Value(string_value=UNKNOWN_SENTINEL)
    if isinstance(value, Secret):
        return _encode({SIGNATURE_KEY: SECRET_SIGNATURE, "value": value.value})
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, Mapping):
        return struct_pb2.Value(struct_value=to_wire(value))
    if isinstance(value, (list, tuple)):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_encode(item) for item in value]))
    raise TypeError(f"cannot put {type(value).__name__} on the wire")


def reveal(value: Any) -> Any:
    """A deep copy without secret marks."""
    return transform(value, lambda leaf: reveal(leaf.value) if isinstance(leaf, Secret) else leaf)


def transform(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Rebuild a value, replacing everything that is not a list or a mapping."""
    if isinstance(value, Mapping):
        return {key: transform(item, leaf) for key, item in value.items()}
    if isinstance(value, list):
        return [transform(item, leaf) for item in value]
    return leaf(value)


def has_unknown(value: Any) -> bool:
    """True when any part is unknown."""
    return any(item is UNKNOWN for _, item in walk(reveal(value)))


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf with its path; a `Secret` is a leaf."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))
    else:
        yield path, value


def secrets_in(value: Any) -> list[Any]:
    """The revealed values under every secret mark."""
    return [reveal(leaf.value) for _, leaf in walk(value) if isinstance(leaf, Secret)]


def dig(value: Any, dotted: str, default: Any = None) -> Any:
    """Look up `a.b.0.c` in nested data; `default` when any step is missing."""
    for step in dotted.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return default
    return value


def fill(target: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Set what is missing, recursing into mappings; existing values win."""
    for key, value in defaults.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            fill(target[key], value)
        elif target.get(key) is None:
            target[key] = value
