"""What is published of a directory: the model's files, all of them, and nothing that tools have left there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply.models.copies import RECORD
from huddle.publish import manifest, source
from huddle.publish.paths import StorePaths
from huddle.registry import Registry
from tests.serving.publish.conftest import MODEL, publish


def test_a_folder_that_cannot_be_read_is_not_left_out(
    known: Registry, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "sub").mkdir()
    real = os.scandir

    def broken(path: Any) -> Any:
        if Path(path).name == "sub":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", broken)
    sentence = r"/sub: cannot be read \(Input/output error\); repair it or remove it"
    with pytest.raises(source.SourceError, match=sentence):
        source.of_model(known.resolve(MODEL), files)


def test_a_link_to_a_folder_above_is_refused(known: Registry, files: Path) -> None:
    (files / "sub").mkdir()
    (files / "sub/again").symlink_to("..")
    with pytest.raises(source.SourceError, match="again: links to a folder that it lies in; remove the link"):
        source.of_model(known.resolve(MODEL), files)


def test_a_nodes_copy_is_published_without_its_marks(known: Registry, store: StorePaths, files: Path) -> None:
    """Its record would make half a copy of it look whole on the next node."""
    plain = publish(source.of_model(known.resolve(MODEL), files), store)
    for name in (RECORD, manifest.FILE, "model.safetensors.0123.partial"):
        (files / name).write_text("{}", encoding="utf-8")
    assert publish(source.of_model(known.resolve(MODEL), files), store).digest == plain.digest
