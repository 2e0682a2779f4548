"""Small models to publish, and a store to publish to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from huddle import registry, tiny_model
from huddle.models.cli import app
from huddle.publish import writer
from huddle.publish.paths import StorePaths
from huddle.publish.source import Source
from huddle.publish.writer import Published
from huddle.registry import Registry

MODEL, ALIAS = "llama-3.2-3b", "hl"
DIRECTORY, ALIAS_DIRECTORY = "Llama-3.2-3B-Instruct", "huddle-ai/language/hl"


def release(folder: Path, **files: bytes) -> Source:
    """Something to publish, without being a model."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return Source("m", "Model-1B", {name: folder / name for name in files})


def publish(made: Source, store: StorePaths, **options: object) -> Published:
    return writer.publish(made, store, reserve_bytes=0, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def known() -> Registry:
    return registry.load()


@pytest.fixture
def store(tmp_path: Path) -> StorePaths:
    (tmp_path / "store").mkdir()
    return StorePaths(tmp_path / "store")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A model's files, as somebody has downloaded them."""
    return tiny_model.make(tmp_path / "files")


@pytest.fixture
def run(store: StorePaths, files: Path) -> Callable[..., dict]:
    """`huddle models …` on the store, with a model published in it."""

    def run(*words: str, code: int = 0) -> dict:
        done = CliRunner().invoke(app, [*words, "--store", str(store.root), "--json"], catch_exceptions=True)
        if code:
            assert done.exception is not None
            raise done.exception
        assert done.exit_code == 0, done.output + str(done.exception)
        return json.loads(done.stdout)

    run("publish", MODEL, "--from", str(files))
    return run
