"""From pydantic's findings to one plain sentence each: which key, which value, what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from plan.azure_facts import GATEWAY_TIERS, REFUSED_TIERS
from plan.errors import Fault, InputError
from plan.settings.azure import LOCATION_KEY, Settings


def parse(values: Mapping[str, Any], file: str) -> Settings:
    """Make Settings from the plain values of a stack file.

    Raises:
        InputError: with one fault for each wrong key.
    """
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors()
        raise InputError(*(_fault(detail, file) for detail in details if not _is_echo(detail, details))) from None


def _is_echo(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Whether a finding only repeats one further down: a list is "too short" once its wrong item is dropped."""
    location = detail["loc"]
    return any(len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in details)


def _fault(detail: ErrorDetails, file: str) -> Fault:
    location = [part for part in detail["loc"] if part != "[key]"]
    key = LOCATION_KEY if location == ["location"] else dotted(location)
    return Fault(file, key, _sentence(detail, location))


def dotted(location: Iterable[int | str]) -> str:
    """Write a path the way people do: serving.models.hl.nodes[0]."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _sentence(detail: ErrorDetails, location: list[int | str]) -> str:
    value, context = _shown(detail["input"]), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(location)
        case "missing":
            return f"is required: {_description(location)}"
        case "enum" | "literal_error":
            return _not_in_list(detail["input"], str(context["expected"]), location)
        case "string_pattern_mismatch":
            return f"{value} is not allowed; it must match {context['pattern']} ({_description(location)})"
        case "value_error":
            return f"{value} {context['error']}"
        case kind if kind in _EXPECTED:
            return f"{value} {_EXPECTED[kind].format(**context)}: {_description(location)}"
        case _:
            return f"{value} is not allowed: {_lower(detail['msg'])} ({_description(location)})"


_EXPECTED: Mapping[str, str] = {
    "model_type": "must be a mapping of settings",
    "model_attributes_type": "must be a mapping of settings",
    "dict_type": "must be a mapping",
    "tuple_type": "must be a list",
    "too_short": "must have {min_length} or more entries",
    "too_long": "must have at most {max_length} entries",
    "string_type": "must be text (quote it in YAML)",
    "string_too_short": "must have {min_length} or more characters",
    "string_too_long": "must have at most {max_length} characters",
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
"""What pydantic's error types ask for, in the words of a stack file."""
_LONGEST_VALUE = 80


def _shown(value: object) -> str:
    """A wrong value as an error may show it: short, on one line, and never a private key."""
    if value is None:
        return "is empty; it"
    text = repr(value) if isinstance(value, str | int | float | list | dict) else repr(str(value))
    if "PRIVATE KEY" in text:
        return "a private key (not shown)"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def _unknown_key(location: list[int | str]) -> str:
    parent = _model_at(location[:-1])
    known = (
        sorted(name for name in parent.model_fields if parent is not Settings or name != "location") if parent else []
    )
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"is not a known key; {hint}allowed: {', '.join(known)}"


def _not_in_list(value: object, expected: str, location: list[int | str]) -> str:
    if location[-2:] == ["gateway", "tier"] and str(value) in REFUSED_TIERS:
        allowed = ", ".join(tier.value for tier in GATEWAY_TIERS)
        return f"{value!r} can't work here: {REFUSED_TIERS[str(value)]}; allowed: {allowed}"
    return f"{_shown(value)} is not allowed; allowed: {expected.replace(' or ', ', ')}"


def _description(location: list[int | str]) -> str:
    parent = _model_at(location[:-1])
    name = str(location[-1])
    if parent is not None and name in parent.model_fields:
        return parent.model_fields[name].description or name
    holder = _model_at(location[:-2])
    if holder is not None and str(location[-2]) in holder.model_fields:
        return holder.model_fields[str(location[-2])].description or name
    return name


def _model_at(location: list[int | str]) -> type[BaseModel] | None:
    """Follow a path through the settings models; None where it leaves them."""
    model: type[BaseModel] | None = Settings
    skip_key = False
    for part in location:
        if skip_key:  # the key of a dict of models
            skip_key = False
            continue
        if isinstance(part, int):  # a place in a list of models
            continue
        if model is None or str(part) not in model.model_fields:
            return None
        annotation = model.model_fields[str(part)].annotation
        skip_key = getattr(annotation, "__origin__", None) is dict
        model = _model_in(annotation)
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
