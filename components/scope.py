"""What every component needs to know about the stack it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from plan.azure import tags
from plan.azure.names import Names


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
        """For what takes few."""
        return tags.first(self.tags)

    @property
    def zone_tags(self) -> Mapping[str, str]:
        """For private DNS zones and their links."""
        return tags.of_zone(self.tags)
