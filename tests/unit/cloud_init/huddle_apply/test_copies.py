"""A new version of a model is made ready beside the copy that is served."""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloud_init.huddle_apply.alone import alone
from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.models import staging
from cloud_init.huddle_apply.models.copies import RECORD, RESERVE_BYTES
from tests.unit.cloud_init.huddle_apply.staged import MODEL, WEIGHTS, Place, begun, cut_at, leave, renewed, tree
from tools.deadlines import scaled


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
        leave(monkeypatch, RESERVE_BYTES + 10)  # a linked file needs none
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
        leave(monkeypatch, RESERVE_BYTES + 1000)
        place.prepare()
        assert served in place.copies.known()
        assert previous not in place.copies.known()
        assert "no room" not in capsys.readouterr().out

    def test_the_served_one_goes_when_nothing_else_helps(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        renewed(place)
        leave(monkeypatch, RESERVE_BYTES + 1000)
        place.boot()
        assert len(place.copies.known()) == 1, "nothing is needed to keep it"
        with monkeypatch.context() as patch:
            cut_at(patch, staging, "_copy_file", 2)
            with pytest.raises(KeyboardInterrupt):
                place.prepare()
        assert place.copies.served is None
        assert "no room for two versions: the served one is removed first" in capsys.readouterr().out
        leave(monkeypatch, RESERVE_BYTES + 10**6)
        place.prepare()
        assert tree(place.copy) == tree(place.store), "it is served at once: there is nothing to switch from"

    def test_the_served_one_stays_when_not_even_that_helps(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        before = renewed(place)
        (place.store / "more").write_bytes(b"1" * 3000)
        leave(monkeypatch, RESERVE_BYTES + 1000)
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
        alias = place.paths.model_store / "org/language/hl"
        alias.mkdir(parents=True)
        (alias / "config.json").write_text("an alias", encoding="utf-8")
        place.boot(directory="org/language/hl")
        copy = place.paths.workspace / "models/org/language/hl"
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
        leave(monkeypatch, RESERVE_BYTES + 1000)
        place.prepare()
        assert tree(place.copies.version(good)) == before

    def test_the_copy_that_is_being_made_is_spared(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        renewed(place)
        with monkeypatch.context() as patch:
            cut_at(patch, staging, "_copy_file", 2)
            with pytest.raises(KeyboardInterrupt):
                place.prepare()
        begun_before = (begun(place) / "config.json").stat().st_ino
        leave(monkeypatch, RESERVE_BYTES + 1000)
        place.prepare()
        assert (place.copy / "config.json").stat().st_ino == begun_before

    def test_files_that_are_shared_make_no_room(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        """Removing the one before frees its own config only, and the served one would not be enough either."""
        place.stage()
        (place.store / "config.json").write_text('{"new": 1}', encoding="utf-8")
        place.stage()
        before = place.copies.known()
        (place.store / "more").write_bytes(b"5" * 1000)
        leave(monkeypatch, RESERVE_BYTES)
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

    def test_a_loop_of_links_is_no_version(self, place: Place) -> None:
        place.stage()
        place.copy.unlink()
        place.copy.symlink_to(place.copy.name)
        assert place.copies.served is None
        place.boot()
        assert tree(place.copy) == tree(place.store)

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
        free = RESERVE_BYTES + 1000
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
        with ThreadPoolExecutor(1) as pool, alone(place.copies.models / ".lock", "staging"):
            pool.submit(place.boot).result(timeout=scaled(5))

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
        staging.stage(place.paths, MODEL, place.bundle, "", keep=keep)
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
