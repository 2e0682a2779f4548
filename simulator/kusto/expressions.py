"""Kusto's expressions, read into functions of a row."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from simulator.kusto.functions import AGGREGATES, SCALARS, Aggregate, Row, Value
from simulator.kusto.lexer import KustoError, Word, words

_SPANS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "=~": lambda left, right: str(left).lower() == str(right).lower(),
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_COUNT: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


class Reader:
    """Words from left to right."""

    def __init__(self, query: str, now: datetime | None = None) -> None:
        self._words = words(query)
        self._scalars = {**SCALARS, "ago": _before(now)}
        self._place = 0

    @property
    def next(self) -> Word:
        """The word that comes; an empty mark at the end."""
        return self._words[self._place] if self._place < len(self._words) else Word("mark", "")

    def take(self, *texts: str) -> str | None:
        """The next word, if it is one of these."""
        word = self.next
        if word.kind in ("mark", "name") and word.text in texts:
            self._place += 1
            return word.text
        return None

    def need(self, text: str) -> None:
        """The next word is this one.

        Raises:
            KustoError: it is not.
        """
        if self.take(text) is None:
            raise KustoError(f"at {self.next.text!r}: expected {text!r}")

    def word(self, kind: str) -> str:
        """The next word, of a kind.

        Raises:
            KustoError: it is of another.
        """
        found = self.next
        if found.kind != kind:
            raise KustoError(f"at {found.text!r}: expected a {kind}")
        self._place += 1
        return found.text

    def ahead(self, text: str) -> bool:
        """Whether the word after the next is this one."""
        after = self._words[self._place + 1 : self._place + 2]
        return bool(after) and after[0].text == text

    def value(self) -> Value:
        """An expression."""
        parts = [self._all()]
        while self.take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def aggregate(self) -> Aggregate:
        """One of `summarize`'s functions.

        Raises:
            KustoError: it is none that is imitated.
        """
        name = self.word("name")
        if name in self._scalars:  # of what one of them gives
            self.need("(")
            inner, scalar = self.aggregate(), self._scalars[name]
            self.need(")")
            return lambda rows: scalar(inner(rows))
        if name not in AGGREGATES:
            raise KustoError(f"{name}() is not imitated")
        return AGGREGATES[name](*self._arguments())

    def named(self, inner: Callable[[], Any]) -> tuple[str, Any]:
        """`Name = inner`, or a column by its own name."""
        if self.next.kind == "name" and self.ahead("="):
            name = self.word("name")
            self.need("=")
            return name, inner()
        if self.ahead("("):  # `bin(TimeGenerated, 1h)` keeps the column's name
            start = self._place + 2
            return self._words[start].text, inner()
        return self.next.text, inner()

    def _all(self) -> Value:
        parts = [self._compared()]
        while self.take("and"):
            parts.append(self._compared())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _compared(self) -> Value:
        left = self._sum()
        if self.take("in"):
            choices = self._arguments()
            return lambda row: left(row) in [each(row) for each in choices]
        if sign := self.take(*_COMPARE):
            right, compare = self._sum(), _COMPARE[sign]

            def compared(row: Row) -> bool:
                one, other = left(row), right(row)
                return one is not None and other is not None and compare(one, other)  # null is nothing's equal

            return compared
        return left

    def _sum(self) -> Value:
        left = self._primary()
        while sign := self.take(*_COUNT):
            left = _counted(_COUNT[sign], left, self._primary())
        return left

    def _primary(self) -> Value:
        if self.take("("):
            found = self.value()
            self.need(")")
        else:
            found = self._plain()
        while self.take("["):
            found = _item(found, self.value())
            self.need("]")
        return found

    def _plain(self) -> Value:
        word = self.next
        self._place += 1
        match word.kind:
            case "text":
                return _constant(ast.literal_eval(word.text))
            case "number":
                return _constant(float(word.text) if "." in word.text else int(word.text))
            case "span":
                return _constant(timedelta(**{_SPANS[word.text[-1]]: int(word.text[:-1])}))
            case "name" if self.next.text == "(":
                if word.text not in self._scalars:
                    raise KustoError(f"{word.text}() is not imitated")
                return _called(self._scalars[word.text], self._arguments())
            case "name":
                return _column(word.text)
        raise KustoError(f"at {word.text!r}: not imitated")

    def _arguments(self) -> list[Value]:
        self.need("(")
        found: list[Value] = []
        while not self.take(")"):
            found.append(self.value())
            self.take(",")
        return found


def _before(now: datetime | None) -> Callable[[timedelta], datetime]:
    """`ago`: a time before the moment at which the query is asked."""

    def ago(span: timedelta) -> datetime:
        if now is None:
            raise KustoError("ago() needs the time at which the query is asked")
        return now - span

    return ago


def _constant(value: Any) -> Value:
    return lambda _: value


def _counted(count: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    def counted(row: Row) -> Any:
        one, other = left(row), right(row)
        return None if one is None or other is None else count(one, other)

    return counted


def _called(function: Callable[..., Any], arguments: list[Value]) -> Value:
    return lambda row: function(*(each(row) for each in arguments))


def _column(name: str) -> Value:
    def column(row: Row) -> Any:
        if name not in row:
            raise KustoError(f"there is no column {name}")
        return row[name]

    return column


def _item(whole: Value, key: Value) -> Value:
    def item(row: Row) -> Any:
        inside, at = whole(row), key(row)
        if isinstance(inside, Mapping):
            return inside.get(at)
        return inside[at] if isinstance(inside, list) and isinstance(at, int) and at < len(inside) else None

    return item
