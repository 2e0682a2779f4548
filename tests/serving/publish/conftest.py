"""Small models to publish, and a store to publish to."""

from __future__ import annotations

from pathlib import Path

import pytest

from huddle import registry, tiny_model
from huddle.publish.layout import StoreLayout
from huddle.registry import Registry

MODEL, ALIAS = "llama-3.2-3b", "hl"
DIRECTORY, ALIAS_DIRECTORY = "Llama-3.2-3B-Instruct", "huddle-ai/language/hl"


@pytest.fixture(scope="session")
def known() -> Registry:
    return registry.load()


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    (tmp_path / "store").mkdir()
    return StoreLayout(tmp_path / "store")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A model's files, as somebody has downloaded them."""
    return tiny_model.make(tmp_path / "files")
