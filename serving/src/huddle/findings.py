"""Pydantic's findings as plain sentences: which key, which value, what is allowed. Every file that we read speaks so.

A key reads as `nodes[0].count`; the names of a union's members, which pydantic puts between, are left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from huddle.yaml_source import KeyPath

EXPECTED: Mapping[str, str] = MappingProxyType(
    {
        "model_type": "must be a mapping of settings",
        "model_attributes_type": "must be a mapping of settings",
        "dict_type": "must be a mapping",
        "tuple_type": "must be a list",
        "list_type": "must be a list",
        "too_short": "must have {min_length} or more entries",
        "too_long": "must have at most {max_length} entries",
        "string_type": "must be text (quote it in YAML)",
        "string_too_short": "must have {min_length} or more characters",
        "string_too_long": "must have at most {max_length} characters",
        "path_type": "must be the path of a file",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "float_parsing": "must be a number",
        "finite_number": "must be a finite number",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "greater_than": "must be more than {gt:g}",
        "greater_than_equal": "must be {ge:g} or more",
        "less_than_equal": "must be {le:.16g} or less",
    }
)
"""What pydantic's error types ask for, in the words of a YAML file."""
_LONGEST_VALUE = 80


@dataclass(frozen=True)
class Finding:
    """One wrong place. `known`: the keys (or words) that may stand there; `description`: of the wrong one's field.

    The description is empty where the field has none: its name stands in the path.
    """

    path: KeyPath
    kind: str
    value: object
    message: str
    context: Mapping[str, Any]
    known: tuple[str, ...]
    description: str


def findings(error: ValidationError, expected: Any) -> tuple[Finding, ...]:
    """What is wrong, in pydantic's order, each place once. `expected`: the model or union that was checked against."""
    details = error.errors()
    places: dict[KeyPath, Finding] = {}
    for detail in details:
        if not _is_echo(detail, details):
            finding = _finding(detail, expected)
            places.setdefault(finding.path, finding)
    return tuple(places.values())


def sentence(finding: Finding, shown: Callable[[object], str] | None = None) -> str:
    """What is wrong at a place and what would be right. `shown` writes a wrong value, for files that hold keys."""
    value, context = (shown or show)(finding.value), finding.context
    about = f": {finding.description}" if finding.description else ""
    match finding.kind:
        case "extra_forbidden":
            return f"is not a known key; {hint(str(finding.path[-1]), finding.known)}"
        case "missing":
            return f"is required{about}"
        case "union_tag_not_found":
            return f"is required; allowed: {', '.join(map(repr, finding.known))}"
        case "union_tag_invalid":
            return f"{value} is not allowed; allowed: {', '.join(map(repr, finding.known))}"
        case "enum" | "literal_error":
            return f"{value} is not allowed; allowed: {str(context['expected']).replace(' or ', ', ')}"
        case "string_pattern_mismatch":
            return f"{value} is not allowed{about}"  # a pattern says nothing to people: `huddle.forms` has words
        case "value_error":
            return _own_words(value, str(context["error"]), finding.value)
        case kind if kind in EXPECTED:
            return f"{value} {EXPECTED[kind].format(**context)}{about}"
        case _:
            return f"{value} is not allowed: {_lower(finding.message)}{about}"


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, and all of them."""
    known = tuple(known)
    close = difflib.get_close_matches(name, known, n=1) or difflib.get_close_matches(name.replace("_", "-"), known, n=1)
    return f"did you mean {close[0]}? allowed: {', '.join(known)}" if close else f"allowed: {', '.join(known)}"


def show(value: object) -> str:
    """A wrong value as an error may show it: short, on one line, and never a private key."""
    if value is None:
        return "is empty; it"
    text = written(value)
    if "PRIVATE KEY" in text:
        return "a private key (not shown)"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def written(value: object) -> str:
    """A value as a YAML file has it, on one line; text in quotes."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in value.items()) + "}"
        case list():
            return f"[{', '.join(map(written, value))}]"
        case str() | int() | float():
            return repr(value)
    return repr(str(value))


def _own_words(shown: str, words: str, value: object) -> str:
    """A validator's words go on after the value, unless they name it, or concern several keys of a section."""
    return words if words.startswith(shown) or isinstance(value, dict | list | tuple) else f"{shown} {words}"


def _is_echo(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Whether a finding only repeats one further down: a list is "too short" once its wrong item is dropped."""
    location = detail["loc"]
    return any(len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in details)


def _finding(detail: ErrorDetails, expected: Any) -> Finding:
    """Follow pydantic's location through the models, to the field that it ends in."""
    path: list[str | int] = []
    within = expected
    known: tuple[str, ...] = ()
    description = ""
    for part in (part for part in detail["loc"] if part != "[key]"):
        choices = _choices(within)
        if len(choices) > 1 and (chosen := [choice for choice in choices if part in _names_of(choice)]):
            within = chosen[0]
            continue
        path.append(part)
        within, known, field = _below(choices[0], part) if len(choices) == 1 else (None, (), None)
        description = (field.description or "") if field else description
    value, context = detail["input"], detail.get("ctx", {})
    if detail["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        path.append(str(context["discriminator"]).strip("'"))
        value, known = context.get("tag"), tuple(str(tag) for choice in _choices(within) for tag in _tags(choice))
    return Finding(tuple(path), detail["type"], value, detail["msg"], context, known, description)


def _choices(annotation: Any) -> list[Any]:
    """What a value may be, apart from nothing."""
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in {Union, UnionType}:
        return [choice for member in get_args(annotation) for choice in _choices(member)]
    return [] if annotation in {None, NoneType} else [annotation]


def _below(kind: Any, part: str | int) -> tuple[Any, tuple[str, ...], FieldInfo | None]:
    """What stands at a key or place of a value: its annotation, the keys that may stand beside it, its field."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        field = fields.get(str(part))
        return (field.annotation if field else None), tuple(sorted(fields)), field
    arguments = get_args(kind)
    return (arguments[1 if get_origin(kind) is dict else 0] if arguments else None), (), None


def _names_of(choice: Any) -> tuple[object, ...]:
    """What pydantic calls a member of a union in a location."""
    return (getattr(choice, "__name__", None), *_tags(choice))


def _tags(choice: Any) -> tuple[object, ...]:
    """The constants by which a model is told apart from the others of its union."""
    fields = choice.model_fields.values() if isinstance(choice, type) and issubclass(choice, BaseModel) else ()
    return tuple(
        tag for field in fields if get_origin(field.annotation) is Literal for tag in get_args(field.annotation)
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
