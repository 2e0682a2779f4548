"""Reading the YAML data that comes with the program: what is wrong in it is a sentence with file, line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from huddle import yaml_source
from huddle.errors import InputError
from huddle.findings import findings, sentence

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T:
    """The file's content, checked against a model, or a mapping of them.

    Raises:
        InputError: the file cannot be read, is no YAML, or has a wrong field; a fault for each.
    """
    document = yaml_source.read(path, "the program's data")
    if twice := document.twice():
        raise InputError(*twice)
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        checked: T = adapter.validate_python(document.data)
    except ValidationError as error:
        found = findings(error, kind)
        raise InputError(*(document.fault(one.path, sentence(one)) for one in found)) from None
    return checked
