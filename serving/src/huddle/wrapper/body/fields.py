"""What may be in a request: the policy for every field that the engine knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import BaseModel, Field

from huddle import data_file
from huddle.errors import Fault, InputError
from huddle.wrapper.body import shapes
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.shapes import Check
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
_DATA = Path(__file__).parents[2] / "data" / "engine_fields.yaml"


@verify(UNIQUE)
class Action(StrEnum):
    """What happens to a field."""

    HANDLED = "handled"
    PASS = "pass"  # noqa: S105 - not a password
    STRIP = "strip"
    SHAPE = "shape"
    SCHEMA = "schema"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class FieldPolicy:
    """The decision about one field: what it may hold, or the reason of a refusal."""

    action: Action
    reason: str = ""
    unless: tuple[Any, ...] = ()
    check: Check | None = None


@cache
def field_policies(route: Route) -> Mapping[str, FieldPolicy]:
    """The judged fields of a route; raises InputError when engine_fields.yaml is wrong."""
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
                raise bad_request("field_not_allowed", f"'{name}' is not accepted: {judged.reason}", name)
            continue
        if judged.check is not None and value is not None:
            value = judged.check(value, name, caps)  # noqa: PLW2901 - what was checked is what is sent
        kept[name] = value
    return kept, len(request) - len(kept)


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


class _Sections(BaseModel):
    chat: dict[str, Any] = Field(alias="chat.completions")
    completions: dict[str, Any]
    embeddings: dict[str, Any]
    responses: dict[str, Any]
    stream_options: dict[str, Any]
    content_parts: dict[str, Any]
    nested: list[str]


@cache
def _data() -> dict[str, Any]:
    return data_file.load(_DATA, _Sections).model_dump(by_alias=True)


def _policy(name: str, value: Any) -> FieldPolicy:
    if isinstance(value, str) and value in set(Action):
        return FieldPolicy(Action(value))
    if isinstance(value, dict) and Action.REFUSE.value in value:
        return FieldPolicy(Action.REFUSE, value["refuse"], tuple(value.get("unless", ())))
    try:
        return FieldPolicy(Action.SHAPE, check=shapes.read(value))
    except ValueError as error:
        raise InputError(Fault(str(_DATA), name, str(error))) from None
