"""One write after another: API Management refuses a second one (docs/facts/api-management.md#one-write-at-a-time)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pulumi

R = TypeVar("R", bound=pulumi.Resource)


class Chain:
    """Lines resources up by `depends_on`: whoever comes next waits for whoever came last.

    Callers add in sorted order, so a newcomer in the middle changes what others wait for, never what they are called.

    In a `shared` service ids change with `gateway.existing.prefix`. There a replacement stands beside the old one until
    nothing names that any more; the provider would delete first, which Azure refuses for what is in use. And everybody
    waits for all who came before: what is replaced early leaves a gap in the line, across which the engine would delete
    at the same time.
    """

    def __init__(self, after: Sequence[pulumi.Resource], *, shared: bool) -> None:
        self._last, self._shared = list(after), shared

    def link(self, parent: pulumi.Resource, *, alone: bool = False) -> pulumi.ResourceOptions:
        """Options for the next resource, a child of `parent`. `alone`: Azure takes no other one beside it."""
        return pulumi.ResourceOptions(
            parent=parent, depends_on=list(self._last), delete_before_replace=alone if self._shared else None
        )

    def add(self, resource: R) -> R:
        """Note `resource` as one that came."""
        self._last = [*self._last, resource] if self._shared else [resource]
        return resource

    @property
    def tail(self) -> list[pulumi.Resource]:
        """What the next link waits for."""
        return list(self._last)
