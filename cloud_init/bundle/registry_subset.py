"""The registry of a stack: the entries of the models that it serves, in the form that `huddle` reads everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from cloud_init.bundle import shipped_registry
from huddle.registry.prompts import find_chat_template
from huddle.registry.schema import Entry
from plan.model import FleetPlan


def files(plan: FleetPlan) -> Iterator[tuple[str, bytes]]:
    """`registry/models.yaml`: base models of all served names, and the served aliases. Beside it their chat templates.

    Raises:
        RegistryError: a chat template that an entry names is not beside the shipped registry.
    """
    known = shipped_registry.load()
    served = [known.resolve(model.name) for model in plan.serving.models]
    document = {
        "models": {one.model.name: _entry(one.model) for one in sorted(served, key=lambda one: one.model.name)},
        "aliases": {one.alias.name: _entry(one.alias) for one in served if one.alias is not None},
    }
    present = {section: entries for section, entries in document.items() if entries}
    yield "registry/models.yaml", yaml.safe_dump(present, sort_keys=False, allow_unicode=True).encode()
    for model in {one.model.name: one.model for one in served}.values():
        if template := find_chat_template(known, model):
            yield f"registry/models/{model.store_directory}/{model.chat_template}", template.read_bytes()


def _entry(entry: Entry) -> dict[str, Any]:
    return entry.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"name"})
