"""How far long work is, on stderr: a bar on a terminal, a line at each tenth elsewhere."""

import sys
from types import TracebackType
from typing import Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

TENTHS = 10


class Steps:
    """A count towards a known total."""

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._total, self._done = what, total, done
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(what, total=total, completed=done)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar:
            self._bar.stop()

    def step(self) -> None:
        """One more is done."""
        before = TENTHS * self._done // self._total
        self._done += 1
        if self._bar:
            self._bar.advance(self._task)
        elif TENTHS * self._done // self._total > before:
            typer.echo(f"{self._what}: {self._done:,} of {self._total:,}", err=True)
