"""The shipped model registry, read once: parsing it takes a tenth of a second, and a bundle asks many times."""

from __future__ import annotations

from functools import cache

from huddle import registry
from huddle.registry import Registry


@cache
def load() -> Registry:
    """The registry of this repository."""
    return registry.load()
