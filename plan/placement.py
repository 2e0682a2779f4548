"""Which nodes serve which model and product. Rules use it before there is a plan; builders use it for the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plan.settings.gateway import Product
from plan.settings.service import Serving
from plan.vocabulary import Topology


@dataclass(frozen=True)
class Placement:
    """The stack's serving section over its node numbers; the first number is the head's."""

    serving_settings: Serving
    numbers: Sequence[int]

    def nodes_of(self, model: str) -> frozenset[int]:
        """The nodes that answer for a served model; a model across all nodes answers on its head only."""
        if self.serving_settings.topology is Topology.DISTRIBUTED:
            return frozenset(self.numbers[:1])
        placed = self.serving_settings.models[model].nodes
        return frozenset(placed if placed is not None else self.numbers)

    def models_of(self, product: Product) -> tuple[str, ...]:
        """The served models that a product may call."""
        return tuple(sorted(product.models or self.serving_settings.models))

    def nodes_of_product(self, product: Product) -> frozenset[int]:
        """The nodes that answer for a product; a rule sees to it that all of its models are on all of them."""
        return self.nodes_of(self.models_of(product)[0])

    @property
    def serving(self) -> frozenset[int]:
        """All nodes that answer for any model."""
        return frozenset().union(*(self.nodes_of(name) for name in self.serving_settings.models))
