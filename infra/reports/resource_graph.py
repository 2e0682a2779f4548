"""A stack's resources, as the program registered them or as a checkpoint holds them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Registered:
    """One resource as the program registered it. `parent` and `depends_on` are URNs; empty parent: the stack."""

    urn: str
    type: str
    name: str
    parent: str
    depends_on: tuple[str, ...]
    custom: bool


def from_checkpoint(resources: Iterable[dict[str, Any]]) -> tuple[Registered, ...]:
    """The same shape from a checkpoint (`pulumi stack export`, deployment.resources)."""
    return tuple(
        Registered(
            urn=resource["urn"],
            type=resource["type"],
            name=resource["urn"].rsplit("::", 1)[-1],
            parent=resource.get("parent", ""),
            depends_on=tuple(resource.get("dependencies") or ()),
            custom=bool(resource.get("custom")),
        )
        for resource in resources
        if not resource["type"].startswith("pulumi:")
    )


def as_json(resources: Iterable[Registered]) -> str:
    """The resources as `infra tree --json` prints them."""
    return json.dumps([vars(resource) for resource in resources], indent=2)
