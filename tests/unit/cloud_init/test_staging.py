"""Model files on the NVMe: copied once, resumed, renewed, never mixed up."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cloud_init.huddle_apply import staging
from cloud_init.huddle_apply.copies import RECORD, Copies
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
        """As a bundle that is applied does it: beside what is served, then switched to."""
        self.prepare(token, **changes)
        self.switch(changes.get("directory", "Model-1B"))

    def prepare(self, token: str = "", **changes: Any) -> None:
        staging.stage(self.layout, {**MODEL, **changes}, self.bundle, token)

    def boot(self, **changes: Any) -> None:
        staging.stage(self.layout, {**MODEL, **changes}, self.bundle, "", keep=True)

    def switch(self, directory: str = "Model-1B") -> None:
        copies = Copies.of(self.layout, directory)
        assert copies.staged is not None
        copies.serve(copies.staged)

    @property
    def copies(self) -> Copies:
        return Copies.of(self.layout, "Model-1B")

    @property
    def record(self) -> dict[str, Any]:
        return self.copies.record(self.copies.served)


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
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != RECORD
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
    models = place.layout.workspace / "models"
    models.mkdir()
    with ThreadPoolExecutor(1) as pool:
        with staging._alone(models):
            waiting = pool.submit(place.boot)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.3)
            assert place.copies.known() == []
        waiting.result()
    assert "waiting for another staging to end" in capsys.readouterr().out
    assert (models / ".lock").stat().st_mode & 0o777 == 0o600, "nobody else can hold it"
    assert tree(place.copy) == tree(place.store)


def test_what_was_not_published_does_not_pass_for_a_digest(place: Place) -> None:
    with pytest.raises(ApplyError, match="the store's m was not published and has no digest, the registry says"):
        place.boot(digest="sha256:9")


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
        place.boot()
    assert place.copies.served is None
    assert not any(place.copies.record(version) for version in place.copies.known())


def test_a_full_disk_is_said_before_anything_is_copied(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, 0)
    with pytest.raises(ApplyError, match=r"has 0 GiB free, the model needs 0 GiB and 4 GiB reserve"):
        place.prepare()
    assert place.copies.known() == []


class TestVersions:
    """The new copy is made ready beside the one that is served."""

    def test_what_is_served_changes_at_the_switch(self, place: Place) -> None:
        before = renewed(place)
        old = place.copies.served
        place.prepare()
        assert tree(place.copy) == before
        place.switch()
        assert tree(place.copy) == tree(place.store)
        assert place.copies.previous == old
        assert old is not None
        assert tree(place.copies.version(old)) == before

    def test_a_boot_keeps_the_copy_that_is_served(self, place: Place) -> None:
        before = renewed(place)
        place.boot()
        assert tree(place.copy) == before

    def test_a_boot_with_a_blank_disk_takes_the_newest(self, place: Place) -> None:
        renewed(place)
        shutil.rmtree(place.copies.models)
        place.boot()
        assert tree(place.copy) == tree(place.store)

    def test_a_boot_does_not_keep_what_is_not_whole(self, place: Place) -> None:
        place.stage()
        (place.copy / RECORD).unlink()
        (place.copy / "config.json").unlink()
        place.boot()
        assert tree(place.copy) == tree(place.store)
        assert place.record

    def test_what_is_alike_is_shared(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.stage()
        (place.store / "config.json").write_text('{"new": 1}', encoding="utf-8")
        weights = (place.copy / "sub/weights.safetensors").stat().st_ino
        leave(monkeypatch, staging._RESERVE_BYTES + 10)  # a linked file needs none
        place.stage()
        assert tree(place.copy) == tree(place.store)
        assert (place.copy / "sub/weights.safetensors").stat().st_ino == weights

    def test_the_one_before_is_kept_and_older_ones_go(self, place: Place) -> None:
        for text in "abc":
            (place.store / "config.json").write_text(text, encoding="utf-8")
            place.stage()
        place.prepare()
        copies = place.copies
        assert sorted(copies.known()) == sorted(map(str, {copies.served, copies.previous}))
        assert (place.copy / "config.json").read_text(encoding="utf-8") == "c"
        assert (copies.version(str(copies.previous)) / "config.json").read_text(encoding="utf-8") == "b"

    def test_room_is_made_from_the_oldest(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        renewed(place)
        place.stage()
        served, previous = place.copies.served, place.copies.previous
        (place.store / "sub/weights.safetensors").write_bytes(b"3" * len(WEIGHTS))
        leave(monkeypatch, staging._RESERVE_BYTES + 1000)
        place.prepare()
        assert served in place.copies.known()
        assert previous not in place.copies.known()
        assert "no room" not in capsys.readouterr().out

    def test_the_served_one_goes_when_nothing_else_helps(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        renewed(place)
        leave(monkeypatch, staging._RESERVE_BYTES + 1000)
        place.boot()
        assert len(place.copies.known()) == 1, "nothing is needed to keep it"
        with monkeypatch.context() as patch:
            cut_at(patch, staging, "_copy_file", 2)
            with pytest.raises(KeyboardInterrupt):
                place.prepare()
        assert place.copies.served is None
        assert "no room for two versions: the served one is removed first" in capsys.readouterr().out
        leave(monkeypatch, staging._RESERVE_BYTES + 10**6)
        place.prepare()
        assert tree(place.copy) == tree(place.store), "it is served at once: there is nothing to switch from"

    def test_the_served_one_stays_when_not_even_that_helps(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        before = renewed(place)
        (place.store / "more").write_bytes(b"1" * 3000)
        leave(monkeypatch, staging._RESERVE_BYTES + 1000)
        with pytest.raises(ApplyError, match="remove models that are not served"):
            place.prepare()
        assert tree(place.copy) == before

    def test_a_cut_while_an_old_one_is_removed_leaves_nothing_that_looks_whole(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        place.stage()
        name = str(place.copies.served)
        with monkeypatch.context() as patch:
            cut_at(patch, shutil, "rmtree", 1)
            with pytest.raises(KeyboardInterrupt):
                place.copies.remove([name])
        assert place.copies.served is None
        place.boot()
        assert tree(place.copy) == tree(place.store)
        assert not list(place.copies.folder.glob(".doomed*"))

    def test_a_model_in_a_directory_of_a_directory(self, place: Place) -> None:
        alias = place.layout.model_store / "org/language/hl"
        alias.mkdir(parents=True)
        (alias / "config.json").write_text("an alias", encoding="utf-8")
        place.boot(directory="org/language/hl")
        copy = place.layout.workspace / "models/org/language/hl"
        assert (copy.is_symlink(), tree(copy)) == (True, {"config.json": b"an alias"})

    def test_what_answered_last_outlives_those_that_never_did(self, place: Place) -> None:
        before = renewed(place)
        good = str(place.copies.served)
        place.copies.note_good()
        for text in "bcd":  # each is cut off before its first answer
            (place.store / "config.json").write_text(text, encoding="utf-8")
            place.stage()
        assert place.copies.good == good
        assert tree(place.copies.version(good)) == before

    def test_what_answered_last_is_the_last_to_make_room(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        before = renewed(place)
        place.copies.note_good()
        good = str(place.copies.good)
        place.stage()
        (place.store / "sub/weights.safetensors").write_bytes(b"4" * len(WEIGHTS))
        leave(monkeypatch, staging._RESERVE_BYTES + 1000)
        place.prepare()
        assert tree(place.copies.version(good)) == before

    def test_the_copy_that_is_being_made_is_spared(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        renewed(place)
        with monkeypatch.context() as patch:
            cut_at(patch, staging, "_copy_file", 2)
            with pytest.raises(KeyboardInterrupt):
                place.prepare()
        begun_before = (begun(place) / "config.json").stat().st_ino
        leave(monkeypatch, staging._RESERVE_BYTES + 1000)
        place.prepare()
        assert (place.copy / "config.json").stat().st_ino == begun_before

    def test_files_that_are_shared_make_no_room(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """Removing the one before frees its own config only, and the served one would not be enough either."""
        place.stage()
        (place.store / "config.json").write_text('{"new": 1}', encoding="utf-8")
        place.stage()
        before = place.copies.known()
        (place.store / "more").write_bytes(b"5" * 1000)
        leave(monkeypatch, staging._RESERVE_BYTES)
        with pytest.raises(ApplyError, match="remove models that are not served"):
            place.prepare()
        assert set(before) <= set(place.copies.known())

    def test_a_version_of_which_all_is_here_needs_no_room(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        (place.store / "old.txt").write_text("old", encoding="utf-8")
        place.stage()
        (place.store / "old.txt").unlink()
        leave(monkeypatch, 0)
        place.stage()
        assert tree(place.copy) == tree(place.store)

    def test_a_link_to_elsewhere_is_no_version(self, place: Place, tmp_path: Path) -> None:
        place.stage()
        place.copy.unlink()
        place.copy.symlink_to(place.store)
        assert place.copies.served is None
        place.boot()
        assert place.copy.resolve().parent == place.copies.folder

    def test_a_damaged_file_of_a_begun_copy_is_replaced(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        place.stage()
        (place.store / "config.json").write_text("new", encoding="utf-8")
        place.prepare()
        copy = begun(place)
        (copy / RECORD).unlink()
        (copy / "sub/weights.safetensors").unlink()
        (copy / "sub/weights.safetensors").write_bytes(b"short")
        place.stage()
        assert tree(place.copy) == tree(place.store)

    def test_a_copy_is_on_the_disk_before_it_counts_as_whole(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        fsync = os.fsync

        def note(descriptor: int) -> None:
            synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", note)
        place.prepare()
        name = begun(place).name
        assert set(synced[:-1]) >= {"sub", name}
        assert synced[-1].startswith(RECORD) or synced[-1].startswith(f".{RECORD}")

    def test_what_a_removal_has_left_goes_before_room_is_made(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else what is served is taken for the only thing that can go."""
        before = renewed(place)
        name = str(place.copies.served)
        left = place.copies.folder / ".doomed-old"
        left.mkdir()
        (left / "weights").write_bytes(b"6" * 10**6)
        usage = type(shutil.disk_usage("/"))
        free = staging._RESERVE_BYTES + 1000
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, free if left.exists() else free + 10**6))
        place.prepare()
        assert not left.exists()
        assert tree(place.copies.version(name)) == before

    def test_a_removal_is_finished_where_it_was_cut_off(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        for _ in range(2):
            place.stage()
            with monkeypatch.context() as patch:
                cut_at(patch, shutil, "rmtree", 1)
                with pytest.raises(KeyboardInterrupt):
                    place.copies.remove([str(place.copies.served)])
        place.stage()
        place.copies.remove([str(place.copies.served)])
        assert place.copies.known() == []
        assert not list(place.copies.folder.glob(".doomed*"))

    def test_a_boot_with_its_copy_waits_for_no_other_staging(self, place: Place) -> None:
        place.stage()
        with ThreadPoolExecutor(1) as pool, staging._alone(place.copies.models):
            pool.submit(place.boot).result(timeout=5)

    def test_what_cannot_be_removed_stops_nobody(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def refuse(path: Path) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        for text in "abc":
            (place.store / "config.json").write_text(text, encoding="utf-8")
            with monkeypatch.context() as patch:
                patch.setattr(shutil, "rmtree", refuse)
                place.stage()
        assert (place.copy / "config.json").read_text(encoding="utf-8") == "c"
        (place.store / "config.json").write_text("d", encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", refuse)
            place.stage()
        assert (place.copy / "config.json").read_text(encoding="utf-8") == "d"
        assert "cannot be removed (Permission denied); remove it by hand" in capsys.readouterr().out
        place.prepare()
        assert not list(place.copies.folder.glob(".doomed*"))

    @pytest.mark.parametrize("keep", [False, True])
    def test_a_model_that_was_put_there_by_hand_is_served_as_it_is(
        self, place: Place, capsys: pytest.CaptureFixture[str], keep: bool
    ) -> None:
        place.copy.mkdir(parents=True)
        (place.copy / "config.json").write_text("mine", encoding="utf-8")
        staging.stage(place.layout, MODEL, place.bundle, "", keep=keep)
        assert tree(place.copy) == {"config.json": b"mine"}
        assert place.copies.known() == []
        assert (
            "was put there by hand and is served as it is; to take versions again, publish" in capsys.readouterr().out
        )

    def test_what_was_put_there_by_hand_has_no_digest(self, place: Place) -> None:
        place.copy.mkdir(parents=True)
        (place.copy / "config.json").write_text("mine", encoding="utf-8")
        with pytest.raises(ApplyError, match=r"by hand, and the registry wants sha256:1: publish it \(`huddle models"):
            place.boot(digest="sha256:1")
        assert tree(place.copy) == {"config.json": b"mine"}

    def test_what_is_being_copied_by_hand_is_not_touched(self, place: Place) -> None:
        place.copy.mkdir(parents=True)
        (place.copy / "weights").write_bytes(b"half")
        with pytest.raises(
            ApplyError, match=r"Model-1B was put there by hand and has no config\.json; complete .* move"
        ):
            place.prepare()
        assert tree(place.copy) == {"weights": b"half"}

    def test_an_empty_directory_is_no_model(self, place: Place) -> None:
        place.copy.mkdir(parents=True)
        place.stage()
        assert tree(place.copy) == tree(place.store)


def test_a_version_that_was_copied_into_a_store_by_hand_is_named_by_its_content(place: Place) -> None:
    """Its directory has one name whatever lies there."""
    for text, digest in (("{}", "sha256:1234"), ("[]", "sha256:5678")):
        (place.store / "config.json").write_text(text, encoding="utf-8")
        (place.store / staging.MANIFEST).write_text(json.dumps({"digest": digest, "files": {}}), encoding="utf-8")
        place.stage()
        assert place.copies.served == digest[-4:]
        assert (place.copy / "config.json").read_text(encoding="utf-8") == text


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
        assert place.record["digest"] == done.digest
        assert place.copies.served == done.version, "what `huddle models published` says"

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
        part = partial(place, "weights")
        part.write_bytes(b"X" * 100)
        with pytest.raises(ApplyError, match="is not what its manifest says"):
            place.stage()
        part.write_bytes(WEIGHTS[:100])
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

    def test_the_version_that_the_registry_names_is_taken_from_the_store(self, place: Place, publish: Publish) -> None:
        """The store's one before: a bundle that still names it comes to a node with a blank disk."""
        first = publish()
        second = publish(weights=b"new")
        place.stage(digest=first.digest)
        assert (place.copy / "weights").read_bytes() == WEIGHTS
        place.stage(digest=second.digest)
        assert (place.copy / "weights").read_bytes() == b"new"

    def test_the_version_that_the_registry_names_may_lie_here(self, place: Place, publish: Publish) -> None:
        first = publish()
        place.stage()
        publish(weights=b"new")
        place.stage()
        shutil.rmtree(place.layout.model_store)
        place.stage(digest=first.digest)
        assert (place.copy / "weights").read_bytes() == WEIGHTS

    def test_a_boot_keeps_only_the_version_that_the_registry_names(self, place: Place, publish: Publish) -> None:
        publish()
        place.stage()
        second = publish(weights=b"new")
        place.boot(digest=second.digest)
        assert (place.copy / "weights").read_bytes() == b"new"

    def test_the_same_content_is_shared_whenever_it_was_published(self, place: Place, publish: Publish) -> None:
        publish()
        place.stage()
        weights = (place.copy / "weights").stat().st_ino
        publish(**{"config.json": b"[]"})
        os.utime(place.store.resolve() / "weights", ns=(10**18, 10**18))
        place.stage()
        assert ((place.copy / "config.json").read_bytes(), (place.copy / "weights").stat().st_ino) == (b"[]", weights)

    def test_what_the_local_disk_has_damaged_is_not_shared(self, place: Place, publish: Publish) -> None:
        publish()
        place.stage()
        (place.copy / "weights").write_bytes(WEIGHTS[::-1])
        publish(**{"config.json": b"[]"})
        place.stage()
        assert (place.copy / "weights").read_bytes() == WEIGHTS

    def test_a_version_without_a_manifest_that_can_be_read_is_not_taken_unchecked(
        self, place: Place, publish: Publish, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = publish()
        manifest = place.store.resolve() / staging.MANIFEST
        text = manifest.read_bytes()
        manifest.write_bytes(bytes(len(text)))
        with pytest.raises(ApplyError, match=r"cannot be read \(it has no manifest that can be read\); is it being"):
            place.boot()
        manifest.write_bytes(text)
        place.stage()
        manifest.write_bytes(bytes(len(text)))
        place.stage()
        assert place.copies.served == first.version
        assert "the copy that is here serves on" in capsys.readouterr().out

    def test_what_the_store_calls_adopted_is_named_by_its_content(self, place: Place, publish: Publish) -> None:
        """The store gives that name to one directory after the other."""
        publish()
        adopted = place.layout.model_store / ".versions/Model-1B/adopted"
        for text in (b"1", b"2"):
            shutil.rmtree(adopted, ignore_errors=True)
            adopted.mkdir()
            (adopted / "config.json").write_bytes(text)
            place.store.unlink()
            place.store.symlink_to(adopted)
            place.stage()
            assert tree(place.copy) == {"config.json": text}

    def test_a_file_that_the_manifest_names_must_be_there(self, place: Place, publish: Publish) -> None:
        publish()
        (place.store.resolve() / "weights").unlink()
        with pytest.raises(ApplyError, match=r"/weights is missing, although the manifest names it: publish"):
            place.boot()
        assert place.copies.served is None

    def test_what_is_being_removed_or_written_in_the_store_is_no_version(self, place: Place, publish: Publish) -> None:
        first = publish()
        publish(weights=b"new")
        versions = place.layout.model_store / ".versions/Model-1B"
        for name in (".doomed-old", ".incoming"):
            (versions / first.version).rename(versions / name)
            with pytest.raises(ApplyError, match="the registry says"):
                place.boot(digest=first.digest)
            (versions / name).rename(versions / first.version)

    @pytest.mark.parametrize("kind", ["published", "by hand", "hub"])
    def test_no_copy_passes_for_a_digest_that_it_does_not_have(self, place: Place, publish: Publish, kind: str) -> None:
        if kind == "published":
            publish()
        elif kind == "by hand":
            place.store.mkdir(parents=True)
            (place.store / "config.json").write_text("{}", encoding="utf-8")
        else:
            TestTheHub().client(place, 'mkdir -p "$4"\n')
        place.stage()
        if kind != "hub":
            shutil.rmtree(place.layout.model_store)
        for stage in (place.boot, place.prepare):
            with pytest.raises(
                ApplyError, match=r"m of digest sha256:9 is neither on this node nor in the model store"
            ):
                stage(digest="sha256:9")

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
        into = place.copies.version(str(place.copies.served))
        assert words == f"download org/Model-1B --revision abc --local-dir {into} --exclude original/*".split()
        assert (place.copy / "token").read_text(encoding="utf-8") == "canary\n"
        assert place.record["revision"] == "abc"

    def test_it_is_fetched_again_for_another_revision_only(self, place: Place) -> None:
        self.client(place, 'mkdir -p "$6"\necho "$4" >>"$6/asked"\necho x >>"${0%/*}/count"\n')
        for revision in ("a", "a", "b", "a"):
            place.stage(revision=revision)
            assert (place.copy / "asked").read_text(encoding="utf-8") == f"{revision}\n"
        assert (place.bundle / "venv/bin/count").read_text(encoding="utf-8") == "x\nx\n"

    def test_another_repository_is_another_model(self, place: Place) -> None:
        self.client(place, 'mkdir -p "$4"\necho "$2" >"$4/from"\n')
        for repository in ("org/Model-1B", "other/Model-1B"):
            place.stage(repository=repository)
            assert (place.copy / "from").read_text(encoding="utf-8") == f"{repository}\n"

    def test_what_came_from_the_hub_is_on_the_disk_before_it_counts_as_whole(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its client does not sync."""
        self.client(place, 'mkdir -p "$4"\n')
        at: list[bool] = []
        monkeypatch.setattr(os, "sync", lambda: at.append(any(map(place.copies.record, place.copies.known()))))
        place.boot()
        assert at == [False]

    def test_a_full_disk_is_not_the_hubs_fault(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        self.client(place, "exit 1\n")
        leave(monkeypatch, 1000)
        with pytest.raises(ApplyError, match=r"cannot be written \(No space left on device\): remove models that are"):
            place.boot()

    def test_a_download_that_failed_goes_on_where_it_was(self, place: Place) -> None:
        self.client(place, 'mkdir -p "$6"\necho x >>"$6/part"\n[[ $(wc -l <"$6/part") -eq 2 ]]\n')
        with pytest.raises(ApplyError):
            place.boot(revision="a")
        place.boot(revision="a")
        assert (place.copy / "part").read_text(encoding="utf-8") == "x\nx\n"

    def test_a_refusal_says_what_to_do(self, place: Place) -> None:
        self.client(place, "echo 'canary 401 Unauthorized' >&2\nexit 1\n")
        with pytest.raises(
            ApplyError, match=r"neither in the model store nor to be had from the hub .* model_hub_token"
        ):
            place.stage()
        assert place.copies.served is None


def test_the_copy_keeps_the_stores_times(place: Place) -> None:
    os.utime(place.store / "config.json", ns=(10**18, 10**18))
    place.stage()
    assert (place.copy / "config.json").stat().st_mtime_ns == 10**18
