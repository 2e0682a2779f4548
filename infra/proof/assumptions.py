"""The table of assumptions: data, checked as it is read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from huddle import data_file

FILE = Path(__file__).with_name("assumptions.yaml")


class Assumption(BaseModel):
    """A sentence that may be false, how it is asked, what follows. `person`: what `infra prove` leaves to people."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    claim: str
    fact: str
    asked: str
    holds: str = ""
    fails: str = ""
    person: str = ""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.person) == bool(self.holds and self.fails):
            raise ValueError("needs `holds` and `fails`, or `person` alone")
        return self


@cache
def load() -> Mapping[str, Assumption]:
    """Every assumption by its id, in the order of the file.

    Raises:
        InputError: the file is wrong.
    """
    return data_file.load(FILE, dict[str, Assumption])
