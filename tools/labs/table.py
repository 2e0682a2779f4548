"""Which labs there are, and which of them a change calls for. Pure, but for reading its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from huddle import data_file

TABLE = Path(__file__).with_name("table.toml")


class Lab(BaseModel):
    """One lab. `minutes`: how long it takes on two idle cores; `paths`: files, and folders with a slash at the end."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = ""
    """The row's key in the table."""
    title: str = Field(alias="is")
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """What lies in `tests` and is another lab's."""
    minutes: int
    paths: tuple[str, ...]

    def reads(self, path: str) -> bool:
        """Whether a file of the tree can change the lab's outcome."""
        return any(path == own or (own.endswith("/") and path.startswith(own)) for own in self.paths)


def load(table: Path = TABLE) -> tuple[Lab, ...]:
    """All labs, in the table's order; raises InputError for a wrong table."""
    rows = data_file.load(table, dict[str, Lab])
    return tuple(lab.model_copy(update={"name": name}) for name, lab in rows.items())


def touched(labs: Iterable[Lab], changed: Sequence[str]) -> tuple[Lab, ...]:
    """The labs that read any of the changed files."""
    return tuple(lab for lab in labs if any(lab.reads(path) for path in changed))
