"""Time zones by the ids of Windows, which Azure's schedules use, from data/azure_time_zones.yaml.

Source: docs/facts/azure.md#time-zones.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from huddle import data_file

_PATH = Path(__file__).resolve().parent / "data" / "azure_time_zones.yaml"


class TimeZones(BaseModel):
    """The IANA names of each Windows id."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    as_of: str
    windows: Mapping[str, tuple[str, ...]]


@lru_cache(maxsize=1)
def load() -> TimeZones:
    """The table that comes with the program; raises InputError for a wrong file."""
    return data_file.load(_PATH, TimeZones)


@lru_cache(maxsize=1)
def _ids() -> Mapping[str, str]:
    """The Windows id of every name that means one, in lower case."""
    windows = load().windows
    names = {name.lower(): own for own, known in windows.items() for name in known}
    return {**names, **{own.lower(): own for own in windows}}


def windows_id(name: str) -> str | None:
    """The Windows id of a time zone by that id or its IANA name, whatever their case; None for any other text."""
    return _ids().get(name.lower())


def nearest(name: str) -> str | None:
    """The Windows id that somebody may have meant."""
    close = difflib.get_close_matches(name.lower(), _ids(), n=1, cutoff=0.75)
    return _ids()[close[0]] if close else None
