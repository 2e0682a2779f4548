"""Models that the hub gives only to those who accepted their licence: said before a node is paid for."""

from __future__ import annotations

import math
from collections.abc import Iterator

from huddle import shapes
from huddle.registry import Model, Registry
from plan.settings.service import ServiceSettings


def warnings(settings: ServiceSettings, registry: Registry, how: str) -> Iterator[str]:
    """A sentence for each model that nodes of a stack without a token for the hub could not fetch.

    A model with a digest is left out: it comes from the model store. `how` is the command that sets the token.
    """
    told: set[str] = set()
    for one in sorted(registry.served, key=lambda one: (one.name != one.model.name, one.name)):  # aliases last
        name, model = one.name, one.model
        if name in settings.serving.models and model.gated and model.digest is None and model.name not in told:
            told.add(model.name)
            other = _nearest(model, registry)
            yield (
                f"serving.models.{name} needs its licence accepted at https://huggingface.co/{model.model} and that "
                f"account's token ({how}), unless the model store holds it already"
                + (f"; {other} needs neither" if other else "")
            )


def _nearest(model: Model, registry: Registry) -> str | None:
    """The model of about the same size that needs no licence accepted."""
    size = shapes.for_model(model).parameters
    free = [other for other in registry.models.values() if not other.gated]
    apart = {other.name: abs(math.log(shapes.for_model(other).parameters / size)) for other in free}
    return min(apart, key=apart.__getitem__, default=None)
