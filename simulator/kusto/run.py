"""Queries, run over tables of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from simulator.kusto.expressions import Reader
from simulator.kusto.functions import Row
from simulator.kusto.lexer import KustoError

_JOINS: Final = ("inner", "leftouter")


@dataclass(frozen=True)
class Table:
    """Rows that all have these columns; what a row lacks is null."""

    columns: tuple[str, ...]
    rows: list[Row]

    @classmethod
    def of(cls, columns: Iterable[str], rows: Iterable[Row]) -> Table:
        """Rows, with null where they have no value.

        Raises:
            KustoError: a row has a column that the table has not.
        """
        names = tuple(columns)
        made: list[Row] = []
        for row in rows:
            if strange := row.keys() - set(names):
                raise KustoError(f"there is no column {', '.join(sorted(strange))}")
            made.append({name: row.get(name) for name in names})
        return cls(names, made)


def run(query: str, tables: Mapping[str, Table], now: datetime | None = None) -> list[Row]:
    """The rows that a query answers with, `now`. A table that is not there is an error, but in a fuzzy union.

    Raises:
        KustoError: the query is wrong, or beyond what is imitated.
    """
    reader = Reader(query, now)
    known = dict(tables)
    while reader.take("let"):
        name = reader.word("name")
        reader.need("=")
        known[name] = _Pipe(reader, known).table()
        reader.need(";")
    found = _Pipe(reader, known).table()
    if reader.next.text:
        raise KustoError(f"at {reader.next.text!r}: not imitated")
    return found.rows


class _Pipe:
    """A source of rows, and the operators behind it."""

    def __init__(self, reader: Reader, known: Mapping[str, Table]) -> None:
        self._reader, self._known = reader, known

    def table(self) -> Table:
        reader, steps = self._reader, self._steps()
        found = self._source() or Table((), [])
        while reader.take("|"):
            name = reader.word("name")
            if name not in steps:
                raise KustoError(f"the operator {name} is not imitated")
            found = steps[name](found)
        return found

    def _steps(self) -> Mapping[str, Callable[[Table], Table]]:
        return {
            "extend": self._extend,
            "join": self._join,
            "order": self._order,
            "project": self._project,
            "summarize": self._summarize,
            "where": self._where,
        }

    def _source(self, *, fuzzy: bool = False) -> Table | None:
        """None for a table that is not there, in a fuzzy union."""
        reader = self._reader
        if reader.take("("):
            found = _Pipe(reader, self._known).table()
            reader.need(")")
            return found
        if reader.take("datatable"):
            return self._datatable()
        if reader.take("union"):
            return self._union()
        name = reader.word("name")
        if name not in self._known and not fuzzy:
            raise KustoError(f"there is no table {name}")
        return self._known.get(name)

    def _union(self) -> Table:
        reader = self._reader
        fuzzy = reader.take("isfuzzy") is not None
        if fuzzy:
            reader.need("=")
            reader.need("true")
        parts = [self._source(fuzzy=fuzzy)]
        while reader.take(","):
            parts.append(self._source(fuzzy=fuzzy))
        there = [part for part in parts if part is not None]
        columns = dict.fromkeys(name for part in there for name in part.columns)
        return Table.of(columns, (row for part in there for row in part.rows))

    def _datatable(self) -> Table:
        reader = self._reader
        columns: list[str] = []
        reader.need("(")
        while not reader.take(")"):
            columns.append(reader.word("name"))
            reader.need(":")
            reader.word("name")
            reader.take(",")
        cells: list[Any] = []
        reader.need("[")
        while not reader.take("]"):
            cells.append(reader.value()({}))
            reader.take(",")
        starts = range(0, len(cells), len(columns))
        return Table.of(columns, (dict(zip(columns, cells[at : at + len(columns)], strict=True)) for at in starts))

    def _listed(self, inner: Callable[[], Any]) -> list[tuple[str, Any]]:
        found = [self._reader.named(inner)]
        while self._reader.take(","):
            found.append(self._reader.named(inner))
        return found

    def _where(self, table: Table) -> Table:
        condition = self._reader.value()
        return Table(table.columns, [row for row in table.rows if condition(row)])

    def _extend(self, table: Table) -> Table:
        """Each new column is there for the next one."""
        columns, rows = self._listed(self._reader.value), []
        for row in table.rows:
            whole = dict(row)
            for name, value in columns:
                whole[name] = value(whole)
            rows.append(whole)
        return Table.of(dict.fromkeys([*table.columns, *(name for name, _ in columns)]), rows)

    def _project(self, table: Table) -> Table:
        columns = self._listed(self._reader.value)
        rows = ({name: value(row) for name, value in columns} for row in table.rows)
        return Table.of((name for name, _ in columns), rows)

    def _summarize(self, table: Table) -> Table:
        """Without `by` there is one row, also of nothing."""
        made = self._listed(self._reader.aggregate)
        by = self._listed(self._reader.value) if self._reader.take("by") else []
        groups: dict[tuple[Any, ...], list[Row]] = {} if by else {(): []}
        for row in table.rows:
            groups.setdefault(tuple(value(row) for _, value in by), []).append(row)
        names = [name for name, _ in by]
        rows = (
            {**dict(zip(names, key, strict=True)), **{name: of(inside) for name, of in made}}
            for key, inside in groups.items()
        )
        return Table.of([*names, *(name for name, _ in made)], rows)

    def _join(self, table: Table) -> Table:
        reader = self._reader
        reader.need("kind")
        reader.need("=")
        kind = reader.take(*_JOINS)
        if kind is None:
            raise KustoError(f"join kind={reader.next.text} is not imitated")
        right = self._source() or Table((), [])
        reader.need("on")
        key = reader.word("name")
        nothing: list[Row] = [{}] if kind == "leftouter" else []
        rows = (
            {**each, **row}
            for row in table.rows
            for each in [one for one in right.rows if one[key] == row[key]] or nothing
        )
        return Table.of(dict.fromkeys([*table.columns, *right.columns]), rows)

    def _order(self, table: Table) -> Table:
        """The order is a person's concern: the columns are read, and the rows stay."""
        self._reader.need("by")
        while True:
            self._reader.word("name")
            self._reader.take("asc", "desc")
            if not self._reader.take(","):
                return table
