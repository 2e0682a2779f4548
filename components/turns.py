"""Whose bundle waits for whose: so many nodes at most leave the service at once (docs/decisions/0022)."""

from __future__ import annotations

import pulumi

from plan.model import ServingPlan
from plan.vocabulary import Topology


class Turns:
    """The nodes of a stack in their order. None for `most_away`: nobody waits, as nodes that only serve together.

    A node that Azure has never asked to apply a bundle serves nobody yet, so nobody waits for it: the nodes of a new
    stack start side by side.
    """

    def __init__(self, most_away: int | None) -> None:
        self._most_away = most_away
        self.serving: list[pulumi.Resource] = []
        """How each node that served before gets its bundle."""

    @classmethod
    def of(cls, serving: ServingPlan) -> Turns:
        """As a stack's serving section says. Nodes that hold parts of one model switch together."""
        return cls(None if serving.topology is Topology.DISTRIBUTED else serving.max_unavailable)

    def before(self) -> list[pulumi.Resource]:
        """What the next node waits for: with the nodes between them, no more than allowed are away."""
        if self._most_away is None or len(self.serving) < self._most_away:
            return []
        return [self.serving[-self._most_away]]

    def took(self, applied: pulumi.Resource | None, *, served_before: bool) -> None:
        """A node with how it gets its bundle."""
        if applied is not None and served_before:
            self.serving.append(applied)
