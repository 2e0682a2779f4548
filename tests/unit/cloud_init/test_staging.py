"""Model files on the NVMe: copied once, resumed, renewed, never mixed up."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cloud_init.huddle_apply import staging
from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.layout import Layout
from huddle.publish import writer
from huddle.publish.layout import StoreLayout
from huddle.publish.source import Source
from huddle.publish.writer import Published

MODEL: dict[str, Any] = {
    "name": "m",
    "directory": "Model-1B",
    "repository": "org/Model-1B",
    "revision": None,
    "digest": None,
}
WEIGHTS = bytes(range(256)) * 1000
Publish = Callable[..., Published]


class Place(NamedTuple):
    layout: Layout
    store: Path
    copy: Path
    bundle: Path

    def stage(self, token: str = "", **changes: Any) -> None:
        staging.stage(self.layout, {**MODEL, **changes}, self.bundle, token)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    layout = Layout(tmp_path / "root")
    layout.workspace.mkdir(parents=True)
    store = layout.model_store / "Model-1B"
    store.mkdir(parents=True)
    (store / "config.json").write_text("{}", encoding="utf-8")
    (store / "sub").mkdir()
    (store / "sub/weights.safetensors").write_bytes(WEIGHTS)
    return Place(layout, store, layout.workspace / "models/Model-1B", tmp_path / "bundle")


def tree(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and p.name != staging.RECORD
    }


def test_the_copy_is_the_store(place: Place) -> None:
    place.stage()
    assert tree(place.copy) == tree(place.store)


def test_a_second_staging_reads_and_writes_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.stage()
    monkeypatch.setattr(staging, "_copy_file", lambda *_: pytest.fail("copied again"))
    place.stage()


def test_what_was_published_since_is_renewed_and_what_was_removed_goes(place: Place) -> None:
    (place.store / "old.txt").write_text("old", encoding="utf-8")
    place.stage()
    (place.store / "old.txt").unlink()
    (place.store / "config.json").write_text('{"new": 1}', encoding="utf-8")
    place.stage()
    assert tree(place.copy) == tree(place.store)


def partial(place: Place, name: str) -> Path:
    """Where a file of the store is copied to."""
    found = place.copy / next(
        source.partial for source in staging._sources(place.store.resolve()) if source.path == name
    )
    found.parent.mkdir(parents=True, exist_ok=True)
    return found


def test_a_copy_that_was_cut_off_goes_on_where_it_was(place: Place) -> None:
    begun = partial(place, "sub/weights.safetensors")
    begun.write_bytes(b"X" * 100)  # told apart from the store's bytes: they are not read again
    place.stage()
    assert (place.copy / "sub/weights.safetensors").read_bytes() == b"X" * 100 + WEIGHTS[100:]
    assert not begun.exists()


@pytest.mark.parametrize("kept_time", [False, True])
def test_another_file_of_the_same_size_is_not_continued(place: Place, kept_time: bool) -> None:
    """A store filled by hand has no manifest that would notice the mixture."""
    weights = place.store / "sub/weights.safetensors"
    weights.write_bytes(b"1" * 1000)
    begun = partial(place, "sub/weights.safetensors")
    begun.write_bytes(b"1" * 500)
    (begun.parent / "weights.safetensors.partial").write_bytes(b"0" * 500)  # as an older staging named it
    before = weights.stat().st_mtime_ns
    weights.write_bytes(b"2" * (2000 if kept_time else 1000))
    os.utime(weights, ns=(before, before) if kept_time else (10**18, 10**18))
    place.stage()
    assert tree(place.copy) == tree(place.store)


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


def served(place: Place) -> dict[str, bytes]:
    return {name: content for name, content in tree(place.copy).items() if not name.endswith(".partial")}


@pytest.mark.parametrize("call", [1, 2])
def test_a_cut_while_files_are_copied_leaves_what_is_served(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    before = renewed(place)
    with monkeypatch.context() as patch:
        cut_at(patch, staging, "_copy_file", call)
        with pytest.raises(KeyboardInterrupt):
            place.stage()
    assert served(place) == before
    assert (place.copy / staging.RECORD).exists()
    place.stage()
    assert tree(place.copy) == tree(place.store)


@pytest.mark.parametrize("call", [1, 2])
def test_a_cut_among_the_renames_is_noticed_and_nothing_is_copied_again(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    renewed(place)
    with monkeypatch.context() as patch:
        cut_at(patch, Path, "replace", call)
        with pytest.raises(KeyboardInterrupt):
            place.stage()
    assert not (place.copy / staging.RECORD).exists()
    kept = [path.stat().st_ino for path in place.copy.rglob("*.partial")]
    assert len(kept) == 3 - call
    leave(monkeypatch, 0)  # none is needed
    place.stage()
    assert tree(place.copy) == tree(place.store)
    assert {*kept} <= {path.stat().st_ino for path in place.copy.rglob("*") if path.is_file()}


def test_files_that_do_not_fit_beside_the_old_ones_replace_them_one_by_one(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place.store / "old.txt").write_text("old", encoding="utf-8")
    renewed(place)
    (place.store / "old.txt").unlink()
    leave(monkeypatch, staging._RESERVE_BYTES + len(WEIGHTS) + 3)
    copied: list[str] = []
    real = staging._copy_file

    def copy(origin: Path, *arguments: Any) -> None:
        assert not (place.copy / staging.RECORD).exists()
        assert not (place.copy / "old.txt").exists()
        assert not list(place.copy.rglob("*.partial"))
        copied.append(origin.name)
        real(origin, *arguments)

    monkeypatch.setattr(staging, "_copy_file", copy)
    place.stage()
    assert copied == ["config.json", "weights.safetensors"]
    assert tree(place.copy) == tree(place.store)
    assert "no room for the old and the new files together: replacing one by one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, r"models/Model-1B cannot be written \(No space .*: 0\.0 GiB of the model are .*; remove models"),
        (errno.EIO, r"models/Model-1B cannot be written \(Input/output error\); see dmesg"),
    ],
    ids=["full", "broken"],
)
def test_a_local_disk_that_cannot_be_written_is_not_the_stores_fault(
    place: Place, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    def full(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ApplyError, match=sentence) as failure:
        place.stage()
    assert "published" not in str(failure.value)


def test_a_store_that_cannot_be_read_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def broken(path: Path, *arguments: Any, **options: Any) -> Any:
        if path.is_relative_to(place.store.resolve()) and arguments == ("rb",) and path.name == "config.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(ApplyError, match=r"config\.json cannot be read \(Input/output error\); is it being published"):
        place.stage()


def test_a_store_that_is_away_does_not_stop_a_node_that_has_its_copy(place: Place) -> None:
    place.stage()
    before = tree(place.copy)
    shutil.rmtree(place.store)
    place.stage()
    assert tree(place.copy) == before


def test_links_of_an_alias_become_files(place: Place) -> None:
    alias = place.layout.model_store / "alias"
    alias.mkdir()
    (alias / "config.json").symlink_to(place.store / "config.json")
    place.stage(directory="alias")
    copied = place.layout.workspace / "models/alias/config.json"
    assert not copied.is_symlink()
    assert copied.read_text(encoding="utf-8") == "{}"


def test_a_file_that_is_written_meanwhile_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = [staging.Source("config.json", 99, 1), staging.Source("sub/weights.safetensors", len(WEIGHTS), 1)]
    monkeypatch.setattr(staging, "_sources", lambda _: iter(longer))
    with pytest.raises(ApplyError, match=r"config\.json changed while it was copied"):
        place.stage()
    assert not (place.copy / staging.RECORD).exists()


def test_a_full_disk_is_said_before_anything_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 0)
    with pytest.raises(ApplyError, match=r"has 0 GiB free, the model needs 0 GiB and 4 GiB reserve"):
        place.stage()
    assert not place.copy.exists()


class TestPublished:
    """What `huddle models publish` has put there: checked byte by byte, of one version, whatever happens meanwhile."""

    @pytest.fixture
    def publish(self, place: Place, tmp_path: Path) -> Callable[..., Published]:
        shutil.rmtree(place.store)

        def publish(**changed: bytes) -> Published:
            files = {"config.json": b"{}", "weights": WEIGHTS, **changed}
            for name, content in files.items():
                (tmp_path / name).write_bytes(content)
            source = Source("m", "Model-1B", {name: tmp_path / name for name in files})
            return writer.publish(source, StoreLayout(place.layout.model_store), reserve_bytes=0)

        return publish

    def test_the_copy_is_the_version_and_its_digest_is_remembered(self, place: Place, publish: Publish) -> None:
        done = publish()
        place.stage(digest=done.digest)
        assert (place.copy / "weights").read_bytes() == WEIGHTS
        assert json.loads((place.copy / staging.RECORD).read_text(encoding="utf-8"))["digest"] == done.digest

    def test_the_same_version_is_not_even_looked_at_again(
        self, place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish()
        place.stage()
        monkeypatch.setattr(staging, "_sources", lambda _: pytest.fail("looked again"))
        place.stage()

    def test_a_new_version_replaces_the_copy(self, place: Place, publish: Publish) -> None:
        publish()
        place.stage()
        publish(weights=b"new")
        place.stage()
        assert (place.copy / "weights").read_bytes() == b"new"

    def test_a_byte_that_differs_from_the_manifest_is_noticed(self, place: Place, publish: Publish) -> None:
        publish()
        weights = place.store.resolve() / "weights"
        weights.write_bytes(bytes([1]) + WEIGHTS[1:])
        with pytest.raises(ApplyError, match=r"weights is not what its manifest says: it is being published, or"):
            place.stage()
        assert not (place.copy / "weights").exists()
        weights.write_bytes(WEIGHTS)
        place.stage()
        assert (place.copy / "weights").read_bytes() == WEIGHTS

    def test_a_copy_that_goes_on_is_checked_from_its_beginning(self, place: Place, publish: Publish) -> None:
        publish()
        begun = partial(place, "weights")
        begun.write_bytes(b"X" * 100)
        with pytest.raises(ApplyError, match="is not what its manifest says"):
            place.stage()
        begun.write_bytes(WEIGHTS[:100])
        place.stage()
        assert (place.copy / "weights").read_bytes() == WEIGHTS

    def test_a_publication_in_the_middle_does_not_mix_versions(
        self, place: Place, publish: Publish, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish()
        real, waiting = staging._copy_file, [lambda: publish(weights=b"new", **{"config.json": b"[]"})]

        def copy(*arguments: Any) -> None:
            if waiting:
                waiting.pop()()
            real(*arguments)

        monkeypatch.setattr(staging, "_copy_file", copy)
        place.stage()
        assert ((place.copy / "config.json").read_bytes(), (place.copy / "weights").read_bytes()) == (b"{}", WEIGHTS)

    def test_another_digest_than_the_registrys_is_refused(self, place: Place, publish: Publish) -> None:
        publish()
        with pytest.raises(ApplyError, match=r"the store's m has digest sha256:\w+, the registry says sha256:0"):
            place.stage(digest=f"sha256:{'0' * 64}")
        assert not place.copy.exists()


class TestTheHub:
    """A model that the store does not have."""

    @pytest.fixture(autouse=True)
    def empty_store(self, place: Place) -> None:
        shutil.rmtree(place.store)

    def client(self, place: Place, body: str) -> None:
        program = place.bundle / "venv/bin/hf"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!/bin/bash\nset -eu\n{body}", encoding="utf-8")
        program.chmod(0o755)

    def test_the_hubs_client_fetches_it_with_the_token_in_its_environment(self, place: Place) -> None:
        self.client(place, 'mkdir -p "$6"\necho "$HF_TOKEN" >"$6/token"\necho "$@" >"$6/words"\n')
        place.stage("canary", revision="abc")
        words = (place.copy / "words").read_text(encoding="utf-8").split()
        assert words == f"download org/Model-1B --revision abc --local-dir {place.copy} --exclude original/*".split()
        assert (place.copy / "token").read_text(encoding="utf-8") == "canary\n"
        assert json.loads((place.copy / staging.RECORD).read_text(encoding="utf-8")) == {"revision": "abc"}

    def test_it_is_fetched_again_for_another_revision_only(self, place: Place) -> None:
        self.client(place, 'mkdir -p "$6"\necho x >>"$6/count"\n')
        for revision in ("a", "a", "b"):
            place.stage(revision=revision)
        assert (place.copy / "count").read_text(encoding="utf-8") == "x\nx\n"

    def test_a_refusal_says_what_to_do(self, place: Place) -> None:
        self.client(place, "echo 'canary 401 Unauthorized' >&2\nexit 1\n")
        with pytest.raises(
            ApplyError, match=r"neither in the model store nor to be had from the hub .* model_hub_token"
        ):
            place.stage()
        assert not (place.copy / staging.RECORD).exists()


def test_the_copy_keeps_the_stores_times(place: Place) -> None:
    os.utime(place.store / "config.json", ns=(10**18, 10**18))
    place.stage()
    assert (place.copy / "config.json").stat().st_mtime_ns == 10**18
