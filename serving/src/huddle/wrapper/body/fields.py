"""What may be in a request: the policy for every field that the engine knows, and the caps on values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

import yaml

from huddle.wrapper.errors import bad_request
from huddle.wrapper.routes import Route

SECTIONS: Final = MappingProxyType(
    {
        Route.CHAT: "chat.completions",
        Route.COMPLETIONS: "completions",
        Route.EMBEDDINGS: "embeddings",
        Route.RESPONSES: "responses",
    }
)


PRIORITY_MAX: Final = 1_000_000
"""Ours; the engine's scheduler takes any whole number."""


@verify(UNIQUE)
class Action(StrEnum):
    """What happens to a field."""

    HANDLED = "handled"
    PASS = "pass"  # noqa: S105 - not a password
    STRIP = "strip"
    CAP = "cap"
    SCHEMA = "schema"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class FieldPolicy:
    """The decision about one field: `detail` is the cap's name, or the reason of a refusal."""

    action: Action
    detail: str = ""
    unless: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Caps:
    """The largest values that a client may ask for."""

    n: int = 8
    output_tokens: int = 32_768
    messages: int = 1_024
    inputs: int = 2_048
    media: int = 16
    tools: int = 128
    stop: int = 16
    logprobs: int = 20
    list_items: int = 1_024
    depth: int = 64
    schema_bytes: int = 262_144
    schema_depth: int = 64
    schema_objects: int = 10_000
    schema_properties: int = 3_000
    schema_choices: int = 4_000
    schema_alternatives: int = 3_000
    schema_items: int = 10_000
    schema_items_total: int = 100_000
    schema_nested_items: int = 1_000_000
    schema_length: int = 100_000
    schema_repetitions: int = 10_000
    grammar_characters: int = 65_536
    grammar_repetitions: int = 1_000
    string_bytes: int = 64 * 1024


@cache
def field_policies(route: Route) -> Mapping[str, FieldPolicy]:
    """The judged fields of a route."""
    return section(SECTIONS[route])


def section(name: str) -> Mapping[str, FieldPolicy]:
    """One section of the file."""
    return MappingProxyType({field: _policy(field, value) for field, value in _data()[name].items()})


@cache
def schema_fields(route: Route) -> frozenset[str]:
    """The fields of a route that may hold schemas or grammars."""
    return frozenset(name for name, judged in field_policies(route).items() if judged.action is Action.SCHEMA)


@cache
def nested() -> frozenset[str]:
    """Names that stand inside of fields; an error may show them."""
    return frozenset(_data()["nested"])


def sections() -> Sequence[str]:
    """The names of all sections."""
    return [name for name, value in _data().items() if isinstance(value, dict)]


def filter_fields(route: Route, request: dict[str, Any], caps: Caps) -> tuple[dict[str, Any], int]:
    """The fields that go on (the handled ones unchecked), and how many were left out. Raises `RequestError`."""
    known = field_policies(route)
    kept: dict[str, Any] = {}
    for name, value in request.items():
        judged = known.get(name)
        if judged is None or judged.action is Action.STRIP:
            continue
        if judged.action is Action.REFUSE:
            if _asks(value, judged.unless):
                raise bad_request("field_not_allowed", f"'{name}' is not accepted: {judged.detail}", name)
            continue
        if judged.action is Action.CAP and value is not None:
            check_cap(name, value, getattr(caps, judged.detail), caps.string_bytes)
        kept[name] = value
    return kept, len(request) - len(kept)


def check_cap(name: str, value: Any, limit: int, string_bytes: int) -> None:
    """Check a number, or the size of a list, an object or a text. Raises `RequestError`."""
    if isinstance(value, str):
        size, limit, what = len(value), string_bytes, "characters"
    elif isinstance(value, list | dict):
        size, what = len(value), "items"
        if any(isinstance(item, str) and len(item) > string_bytes for item in value):
            raise bad_request("value_too_large", f"a text in '{name}' is over {string_bytes} characters", name)
    elif isinstance(value, int) and not isinstance(value, bool):
        if value > limit:
            raise bad_request("value_too_large", f"'{name}' is {value}; at most {limit} is allowed here", name)
        return
    else:
        raise bad_request("invalid_type", f"'{name}' has the wrong type", name)
    if size > limit:
        raise bad_request("value_too_large", f"'{name}' has {size} {what}; at most {limit} are allowed here", name)


def whole_number(request: dict[str, Any], name: str, minimum: int, default: int | None) -> int | None:
    """A field that must be a whole number of at least `minimum`, when it is there. Raises `RequestError`."""
    value = request.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise bad_request("invalid_type", f"'{name}' must be a whole number", name)
    if value < minimum:
        raise bad_request("invalid_value", f"'{name}' is {value}; it must be at least {minimum}", name)
    return value


def flag(request: dict[str, Any], name: str) -> bool:
    """A field that must be true or false, when it is there. Raises `RequestError`."""
    value = request.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise bad_request("invalid_type", f"'{name}' must be true or false", name)


def _asks(value: Any, unless: tuple[Any, ...]) -> bool:
    """Whether a value asks for anything: null, false and empty do not, but 0 can (`prompt_logprobs: 0`)."""
    return value is not None and value is not False and value not in ("", [], {}) and value not in unless


@cache
def _data() -> dict[str, Any]:
    text = (files("huddle") / "data/engine_fields.yaml").read_text()
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def _policy(name: str, value: Any) -> FieldPolicy:
    if isinstance(value, str):
        return FieldPolicy(Action(value))
    rest = dict(value)
    unless = tuple(rest.pop("unless", ()))
    ((action, detail),) = rest.items()
    judged = FieldPolicy(Action(action), detail, unless)
    if judged.action is Action.CAP and not hasattr(Caps, judged.detail) and judged.detail not in Caps.__slots__:
        raise ValueError(f"engine_fields.yaml: {name} names the unknown cap {detail!r}")
    return judged
