"""Reading token counts: JSON as `az monitor log-analytics query -o json` gives it, or CSV with a header."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huddle.errors import Fault, InputError
from infra.reports.usage.bill import TokenUse, merged

COLUMNS = ("product", "subscription", "prompt_tokens", "completion_tokens")
SUFFIXES = (".json", ".csv")
_COUNT = re.compile(r"([0-9]{1,15})(?:\.0*)?")
"""Azure's JSON has numbers as text, and sums as `1234.0`. More digits would not survive the way through a float."""


def read(path: Path) -> tuple[TokenUse, ...]:
    """The counts, one entry for each subscription.

    Raises:
        InputError: the file is none of the two, or a row lacks a column or holds something that is no count.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(Fault(str(path), "", f"can't be read: {reason}")) from None
    match path.suffix.lower():
        case ".json":
            rows = _json(path, text)
        case ".csv":
            rows = _csv(path, text)
        case other:
            allowed = ", ".join(SUFFIXES)
            raise InputError(Fault(str(path), "", f"{other or 'no suffix'!r} is not allowed; allowed: {allowed}"))
    return merged(_use(path, number, row) for number, row in rows)


def _json(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(Fault(str(path), "", f"is not valid JSON: {error}")) from None
    except RecursionError:
        raise InputError(Fault(str(path), "", "is not valid JSON: it is nested too deeply")) from None
    if not isinstance(document, list) or not all(isinstance(row, dict) for row in document):
        raise InputError(Fault(str(path), "", "must be a list of objects, as `az monitor log-analytics query` gives"))
    yield from ((f"[{index}]", row) for index, row in enumerate(document))


def _csv(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines())
    try:
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(Fault(str(path), "line 1", f"lacks the columns {', '.join(missing)}"))
        yield from ((f"line {reader.line_num}", row) for row in reader)
    except csv.Error as error:
        raise InputError(Fault(str(path), f"line {reader.line_num + 1}", f"is not valid CSV: {error}")) from None


def _use(path: Path, where: str, row: Mapping[str, Any]) -> TokenUse:
    names = [_name(path, where, column, row.get(column)) for column in COLUMNS[:2]]
    counts = [_count(path, where, column, row.get(column)) for column in COLUMNS[2:]]
    return TokenUse(names[0], names[1], *counts)


def _name(path: Path, where: str, column: str, value: object) -> str:
    if value is None or value == "":
        raise InputError(Fault(str(path), where, f"has no {column}"))
    name = value.strip() if isinstance(value, str) else ""
    if not name or not name.isprintable():
        raise InputError(Fault(str(path), where, f"{column} is {ascii(value)[:80]}; allowed: printable text"))
    return name


def _count(path: Path, where: str, column: str, value: object) -> int:
    written = _COUNT.fullmatch(str(value).strip())
    if written is None:
        shown = "not there" if value is None else ascii(value)[:80]
        allowed = "a whole number, 0 or more, of at most 15 digits"
        raise InputError(Fault(str(path), where, f"{column} is {shown}; allowed: {allowed}"))
    return int(written[1])
