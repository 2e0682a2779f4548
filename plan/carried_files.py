"""The files that a bundle carries for the served models: prompts and chat templates beside the model registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from huddle.registry import Registry
from huddle.registry.prompts import find_chat_template, read_system_prompt
from plan.settings.service import Serving


def checks(serving: Serving, registry: Registry) -> Iterator[Callable[[], object]]:
    """A step for each file that must be there; each raises RegistryError. Unknown names are left to the rules."""
    served = [one for one in registry.served if one.name in serving.models]
    for one in served:
        if serving.models[one.name].system_prompt is None:
            yield partial(read_system_prompt, registry, one)
    for model in {one.model.name: one.model for one in served}.values():
        yield partial(find_chat_template, registry, model)
