"""Which labs there are, and which of them a change calls for. Pure, but for reading its table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("table.toml")


@dataclass(frozen=True)
class Lab:
    """One lab. `minutes`: how long it takes on two idle cores; `paths`: files, and folders with a slash at the end."""

    name: str
    title: str
    tests: tuple[str, ...]
    minutes: int
    paths: tuple[str, ...]

    def reads(self, path: str) -> bool:
        """Whether a file of the tree can change the lab's outcome."""
        return any(path == own or (own.endswith("/") and path.startswith(own)) for own in self.paths)


def load(table: Path = TABLE) -> tuple[Lab, ...]:
    """All labs, in the table's order."""
    rows = tomllib.loads(table.read_text(encoding="utf-8")).items()
    return tuple(
        Lab(name, row["is"], tuple(row["tests"]), int(row["minutes"]), tuple(row["paths"])) for name, row in rows
    )


def touched(labs: Iterable[Lab], changed: Sequence[str]) -> tuple[Lab, ...]:
    """The labs that read any of the changed files."""
    return tuple(lab for lab in labs if any(lab.reads(path) for path in changed))
