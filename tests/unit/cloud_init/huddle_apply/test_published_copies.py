"""Copies of what `huddle models publish` has made, and of what the hub has."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.models import staging
from huddle.publish import writer
from huddle.publish.paths import ADOPTED, StorePaths
from huddle.publish.source import Source
from huddle.publish.writer import Published
from tests.unit.cloud_init.huddle_apply.staged import WEIGHTS, Place, leave, partial, tree

Publish = Callable[..., Published]


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
            return writer.publish(source, StorePaths(place.paths.model_store), reserve_bytes=0)

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
        shutil.rmtree(place.paths.model_store)
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
        adopted = place.paths.model_store / ".versions/Model-1B" / ADOPTED
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
        versions = place.paths.model_store / ".versions/Model-1B"
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
            shutil.rmtree(place.paths.model_store)
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
            ApplyError, match=r"not in the model store, and the hub does not give it .* model_hub_token"
        ):
            place.stage()
        assert place.copies.served is None
