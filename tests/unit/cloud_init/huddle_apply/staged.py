"""A node that stages models, for tests: its store, its copies, and faults for them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cloud_init.huddle_apply.models import staging
from cloud_init.huddle_apply.models.copies import RECORD, Copies
from cloud_init.huddle_apply.paths import NodePaths

MODEL: dict[str, Any] = {
    "name": "m",
    "directory": "Model-1B",
    "repository": "org/Model-1B",
    "revision": None,
    "digest": None,
}
WEIGHTS = bytes(range(256)) * 1000


class Place(NamedTuple):
    paths: NodePaths
    store: Path
    copy: Path
    bundle: Path

    def stage(self, token: str = "", **changes: Any) -> None:
        """As a bundle that is applied does it: beside what is served, then switched to."""
        self.prepare(token, **changes)
        self.switch(changes.get("directory", "Model-1B"))

    def prepare(self, token: str = "", **changes: Any) -> None:
        staging.stage(self.paths, {**MODEL, **changes}, self.bundle, token)

    def boot(self, **changes: Any) -> None:
        staging.stage(self.paths, {**MODEL, **changes}, self.bundle, "", keep=True)

    def switch(self, directory: str = "Model-1B") -> None:
        copies = Copies.of(self.paths, directory)
        assert copies.staged is not None
        copies.serve(copies.staged)

    @property
    def copies(self) -> Copies:
        return Copies.of(self.paths, "Model-1B")

    @property
    def record(self) -> dict[str, Any]:
        return self.copies.record(self.copies.served)


def made(tmp_path: Path) -> Place:
    """A store with one model, put there by hand, and a local disk with nothing on it."""
    paths = NodePaths(tmp_path / "root")
    paths.workspace.mkdir(parents=True)
    store = paths.model_store / "Model-1B"
    store.mkdir(parents=True)
    (store / "config.json").write_text("{}", encoding="utf-8")
    (store / "sub").mkdir()
    (store / "sub/weights.safetensors").write_bytes(WEIGHTS)
    return Place(paths, store, paths.workspace / "models/Model-1B", tmp_path / "bundle")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != RECORD
    }


def begun(place: Place) -> Path:
    """Where the version that the store has now is copied to."""
    sources = tuple(staging._sources(place.store.resolve()))
    content = staging._digest(place.store.resolve()) or staging._listing(sources)
    return place.copies.version(staging._name(place.store.resolve(), staging._digest(place.store.resolve()), content))


def partial(place: Place, name: str) -> Path:
    """Where a file of the store is copied to."""
    source = next(one for one in staging._sources(place.store.resolve()) if one.path == name)
    found = begun(place) / source.partial
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def cut_at(monkeypatch: pytest.MonkeyPatch, target: Any, name: str, call: int) -> list[Path]:
    """The power goes at the n-th call of a function; where it was called before."""
    real, seen = getattr(target, name), []

    def until(path: Path, *arguments: Any) -> Any:
        seen.append(path)
        if len(seen) == call:
            raise KeyboardInterrupt
        return real(path, *arguments)

    monkeypatch.setattr(target, name, until)
    return seen


def leave(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """The local disk has so many bytes free."""
    usage = type(shutil.disk_usage("/"))(free, 0, free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def renewed(place: Place) -> dict[str, bytes]:
    """Stage, then change every file of the store: what was served before."""
    place.stage()
    before = tree(place.copy)
    for name in before:
        (place.store / name).write_bytes(before[name][::-1] + b"new")
    return before
