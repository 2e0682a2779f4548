"""Typical durations of Azure's operations, as data with sources: infra/reports/data/durations.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import UNIQUE, StrEnum, verify
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from huddle import data_file

_DURATIONS = Path(__file__).resolve().parent / "data" / "durations.yaml"
ASSUMPTION = "assumption"


@verify(UNIQUE)
class Operation(StrEnum):
    """What is done to every resource. Deletion runs against the direction of dependencies."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Variant(_Data):
    """What one SKU of a type takes (seconds); what is absent is as in the type's row."""

    create: float | None = None
    update: float | None = None
    delete: float | None = None
    sources: Mapping[Operation, str] = {}


class Row(_Data):
    """What one resource type takes (seconds)."""

    create: float
    update: float
    delete: float
    sources: Mapping[Operation, str] = {}
    variants: Mapping[str, Variant] = {}


class Durations(_Data):
    """Azure's times by resource type, in seconds, with their sources."""

    default: Row
    resources: Mapping[str, Row]

    def lookup(self, resource_type: str, operation: Operation, variant: str | None = None) -> tuple[float, str]:
        """Seconds and their source for one resource; `ASSUMPTION` where nobody measured."""
        row = self.resources.get(plain_type(resource_type), self.default)
        special = row.variants.get(variant or "")
        seconds = getattr(special, operation) if special else None
        if special is not None and seconds is not None:
            return float(seconds), special.sources.get(operation, ASSUMPTION)
        return float(getattr(row, operation)), row.sources.get(operation, ASSUMPTION)


@lru_cache(maxsize=1)
def load() -> Durations:
    """The durations that come with the program; raises InputError for a wrong file."""
    return data_file.load(_DURATIONS, Durations)


def plain_type(resource_type: str) -> str:
    """A type without the API version that explicit modules carry: `compute/v20241101:Disk` is `compute:Disk`."""
    return re.sub(r"/v\d{8}(preview)?:", ":", resource_type)
