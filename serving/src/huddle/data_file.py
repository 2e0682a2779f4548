"""Reading the data that comes with the program: what is wrong in it is a sentence with file, line and field."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from huddle import yaml_source
from huddle.errors import Fault, InputError
from huddle.findings import Finding, findings, sentence

T = TypeVar("T")
_WHAT = "the program's data"
_PARSERS: dict[str, Callable[[str], Any]] = {".json": json.loads, ".toml": tomllib.loads}


def load(path: Path, kind: type[T]) -> T:
    """The content of a YAML, JSON or TOML file, checked against a model, or a mapping of them.

    Raises:
        InputError: the file cannot be read, is not of its format, or has a wrong field; a fault for each.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    try:
        checked: T = adapter.validate_python(_content(path))
    except ValidationError as error:
        raise InputError(*(_fault(path, one) for one in findings(error, kind))) from None
    return checked


def text(path: Path) -> str:
    """A text file of the program, such as a template.

    Raises:
        InputError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(Fault(str(path), "", f"cannot read {_WHAT} ({error.strerror or error})")) from error
    except UnicodeDecodeError as error:
        raise InputError(Fault(str(path), "", f"{_WHAT} is not UTF-8 text: {error}")) from error


def _content(path: Path) -> Any:
    parse = _PARSERS.get(path.suffix)
    if parse is None:
        document = yaml_source.read(path, _WHAT)
        if twice := document.twice():
            raise InputError(*twice)
        return document.data
    content = text(path)
    try:
        return parse(content)
    except ValueError as error:  # the parsers' words name line and column
        raise InputError(Fault(str(path), "", f"{_WHAT} is not {path.suffix[1:].upper()}: {error}")) from error


def _fault(path: Path, finding: Finding) -> Fault:
    if path.suffix == ".toml":  # its parser tells no lines
        return Fault(str(path), yaml_source.dotted(finding.path), sentence(finding))
    return yaml_source.read(path, _WHAT).fault(finding.path, sentence(finding))  # JSON is YAML, so its lines are known
