"""Time zones by the ids of Windows, which Azure's schedules use, from data/azure_time_zones.yaml.

Source: docs/facts/azure.md#time-zones.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml

_FILE = Path(__file__).parent / "data" / "azure_time_zones.yaml"


@cache
def _windows() -> Mapping[str, list[str]]:
    found: Mapping[str, list[str]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))["windows"]
    return found


@cache
def _ids() -> Mapping[str, str]:
    """The Windows id of every name that means one, in lower case."""
    names = {name.lower(): own for own, all_names in _windows().items() for name in all_names}
    return {**names, **{own.lower(): own for own in _windows()}}


def windows_id(name: str) -> str | None:
    """The Windows id of a time zone by that id or its IANA name, whatever their case; None for any other text."""
    return _ids().get(name.lower())


def nearest(name: str) -> str | None:
    """The Windows id that somebody may have meant."""
    close = difflib.get_close_matches(name.lower(), _ids(), n=1, cutoff=0.75)
    return _ids()[close[0]] if close else None
