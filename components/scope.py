"""What every component needs to know about the stack it belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import pulumi

from plan.azure.names import Names

_FIRST_TAGS = 15
_ZONE_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class StackScope:
    """Where resources go and what they are called. `protect`: data and gateway refuse deletion."""

    resource_group_name: pulumi.Input[str]
    location: str
    tags: Mapping[str, str]
    names: Names
    protect: bool

    @property
    def first_tags(self) -> Mapping[str, str]:
        """The first 15, and so this program's own: no secret and no gateway takes more (docs/facts/azure.md#tags)."""
        return dict(islice(self.tags.items(), _FIRST_TAGS))

    @property
    def zone_tags(self) -> Mapping[str, str]:
        """What a private DNS zone keeps, 15 at most: others vanish, and every preview would bring them back."""
        kept = ((name, value) for name, value in self.tags.items() if _ZONE_TAG.fullmatch(name))
        return dict(islice(kept, _FIRST_TAGS))
