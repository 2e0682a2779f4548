"""Model files on the NVMe: copied once, resumed, renewed, never mixed up."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply.alone import alone
from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.models import staging
from cloud_init.huddle_apply.models.copies import RECORD
from tests.unit.cloud_init.huddle_apply.staged import WEIGHTS, Place, begun, cut_at, leave, partial, renewed, tree
from tools.deadlines import until


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


def test_a_copy_that_was_cut_off_goes_on_where_it_was(place: Place) -> None:
    part = partial(place, "sub/weights.safetensors")
    part.write_bytes(b"X" * 100)  # told apart from the store's bytes: they are not read again
    place.stage()
    assert (place.copy / "sub/weights.safetensors").read_bytes() == b"X" * 100 + WEIGHTS[100:]
    assert not part.exists()


@pytest.mark.parametrize("kept_time", [False, True])
def test_another_file_of_the_same_size_is_not_continued(place: Place, kept_time: bool) -> None:
    """A store filled by hand has no manifest that would notice the mixture."""
    weights = place.store / "sub/weights.safetensors"
    weights.write_bytes(b"1" * 1000)
    partial(place, "sub/weights.safetensors").write_bytes(b"1" * 500)
    before = weights.stat().st_mtime_ns
    weights.write_bytes(b"2" * (2000 if kept_time else 1000))
    os.utime(weights, ns=(before, before) if kept_time else (10**18, 10**18))
    place.stage()
    assert tree(place.copy) == tree(place.store)


@pytest.mark.parametrize("call", [1, 2])
@pytest.mark.parametrize("at", ["copied", "renamed"])
def test_a_cut_leaves_what_is_served_and_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, at: str, call: int
) -> None:
    before = renewed(place)
    with monkeypatch.context() as patch:
        cut_at(patch, staging if at == "copied" else Path, "_copy_file" if at == "copied" else "replace", call)
        with pytest.raises(KeyboardInterrupt):
            place.prepare()
    assert tree(place.copy) == before
    assert place.record
    kept = {path.stat().st_ino for path in begun(place).rglob("*") if path.is_file()}
    assert len(kept) == call - (at == "copied")
    place.boot()
    assert tree(place.copy) == before
    place.stage()
    assert tree(place.copy) == tree(place.store)
    assert kept <= {path.stat().st_ino for path in place.copy.rglob("*") if path.is_file()}


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


def test_a_store_that_cannot_be_read_does_not_stop_a_node_that_has_its_copy(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place.stage()
    before = tree(place.copy)

    def dead(*_: Any) -> Any:
        raise OSError(errno.EHOSTDOWN, os.strerror(errno.EHOSTDOWN))

    monkeypatch.setattr(staging, "_sources", dead)
    place.stage()
    assert tree(place.copy) == before
    assert "cannot be read (Host is down); the copy that is here serves on" in capsys.readouterr().out


def test_a_store_that_was_filled_from_a_nodes_copy_gives_its_files_only(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node's mark would make the half copy look whole."""
    (place.store / RECORD).write_text('{"digest": null}', encoding="utf-8")
    (place.store / "weights.0123.partial").write_bytes(b"half")
    with monkeypatch.context() as patch:
        cut_at(patch, staging, "_copy_file", 2)
        with pytest.raises(KeyboardInterrupt):
            place.boot()
    assert place.copies.served is None
    place.boot()
    assert set(tree(place.copy)) == {"config.json", "sub/weights.safetensors"}


def test_two_stagings_wait_for_each_other(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    models = place.paths.workspace / "models"
    models.mkdir()
    with ThreadPoolExecutor(1) as pool:
        with alone(models / ".lock", "staging"):
            waiting = pool.submit(place.boot)
            until(lambda: "waiting for another staging to end" in capsys.readouterr().out, "the second one waits")
            assert place.copies.known() == []
        waiting.result()
    assert (models / ".lock").stat().st_mode & 0o777 == 0o600, "nobody else can hold it"
    assert tree(place.copy) == tree(place.store)


def test_what_was_not_published_does_not_pass_for_a_digest(place: Place) -> None:
    with pytest.raises(ApplyError, match="the store's m was not published and has no digest, the registry says"):
        place.boot(digest="sha256:9")


def test_links_of_an_alias_become_files(place: Place) -> None:
    alias = place.paths.model_store / "alias"
    alias.mkdir()
    (alias / "config.json").symlink_to(place.store / "config.json")
    place.stage(directory="alias")
    copied = place.paths.workspace / "models/alias/config.json"
    assert not copied.is_symlink()
    assert copied.read_text(encoding="utf-8") == "{}"


def test_a_file_that_is_written_meanwhile_is_noticed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = [staging.Source("config.json", 99, 1), staging.Source("sub/weights.safetensors", len(WEIGHTS), 1)]
    monkeypatch.setattr(staging, "_sources", lambda _: iter(longer))
    with pytest.raises(ApplyError, match=r"config\.json changed while it was copied"):
        place.boot()
    assert place.copies.served is None
    assert not any(place.copies.record(version) for version in place.copies.known())


def test_a_full_disk_is_said_before_anything_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 0)
    with pytest.raises(ApplyError, match=r"has 0 GiB free, the model needs 0 GiB and 4 GiB reserve"):
        place.prepare()
    assert place.copies.known() == []


def test_a_version_that_was_copied_into_a_store_by_hand_is_named_by_its_content(place: Place) -> None:
    """Its directory has one name whatever lies there."""
    for text, digest in (("{}", "sha256:1234"), ("[]", "sha256:5678")):
        (place.store / "config.json").write_text(text, encoding="utf-8")
        (place.store / staging.MANIFEST).write_text(json.dumps({"digest": digest, "files": {}}), encoding="utf-8")
        place.stage()
        assert place.copies.served == digest[-4:]
        assert (place.copy / "config.json").read_text(encoding="utf-8") == text


def test_the_copy_keeps_the_stores_times(place: Place) -> None:
    os.utime(place.store / "config.json", ns=(10**18, 10**18))
    place.stage()
    assert (place.copy / "config.json").stat().st_mtime_ns == 10**18
