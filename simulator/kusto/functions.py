"""Kusto's functions, as far as our queries call them. None is Kusto's null."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

Row = Mapping[str, Any]
Value = Callable[[Row], Any]
Aggregate = Callable[[Sequence[Row]], Any]


def text(value: Any) -> str:
    """`tostring`: null is the empty text."""
    return "" if value is None else str(value)


def whole(value: Any) -> int | None:
    """`tolong`."""
    return None if value is None else int(value)


def start(value: datetime, span: timedelta) -> datetime:
    """`bin` of a time."""
    since = value - datetime.min.replace(tzinfo=value.tzinfo)
    return value - since % span


SCALARS: Final[Mapping[str, Callable[..., Any]]] = {
    "bin": start,
    "coalesce": lambda *values: next((value for value in values if value not in (None, "")), None),
    "iff": lambda condition, yes, no: yes if condition else no,
    "isnotempty": lambda value: text(value) != "",
    "split": lambda value, mark: text(value).split(mark),
    "tolong": whole,
    "tostring": text,
}


def count() -> Aggregate:
    """`count()`."""
    return len


def countif(condition: Value) -> Aggregate:
    """`countif(condition)`."""
    return lambda rows: sum(bool(condition(row)) for row in rows)


def total(value: Value, condition: Value | None = None) -> Aggregate:
    """`sum(value)`, and `sumif(value, condition)`: null counts nothing."""
    return lambda rows: sum(
        found for row in rows if condition is None or condition(row) if (found := value(row)) is not None
    )


def percentile(value: Value, percent: Value) -> Aggregate:
    """`percentile(value, percent)`: the nearest rank, which Kusto's estimate is near to."""

    def of(rows: Sequence[Row]) -> Any:
        found = sorted(each for row in rows if (each := value(row)) is not None)
        return found[max(math.ceil(len(found) * percent({}) / 100) - 1, 0)] if found else None

    return of


AGGREGATES: Final[Mapping[str, Callable[..., Aggregate]]] = {
    "count": count,
    "countif": countif,
    "percentile": percentile,
    "sum": total,
    "sumif": total,
}
