"""Publishing to a store: whole versions, one switch, resumed, verified, tidied up."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from huddle.models.cli import app
from huddle.publish import hub, manifest, source, writer
from huddle.publish.manifest import ManifestError
from huddle.publish.paths import ADOPTED, INCOMING, StorePaths
from huddle.publish.writer import NoSpaceError, PublishError
from huddle.registry import Registry
from tests.serving.publish.conftest import ALIAS, ALIAS_DIRECTORY, DIRECTORY, MODEL, publish, release


class Killed(BaseException):
    """As SIGKILL: nothing of the program's own runs afterwards."""


def contents(folder: Path) -> dict[str, bytes]:
    """What a reader finds: files by path, through links."""
    return {
        (Path(base) / name).relative_to(folder).as_posix(): (Path(base) / name).read_bytes()
        for base, _, names in os.walk(folder)
        for name in names
        if name != manifest.FILE
    }


def test_what_is_published_is_what_was_given_with_a_manifest(known: Registry, store: StorePaths, files: Path) -> None:
    done = publish(source.of_model(known.resolve(MODEL), files), store)
    public = store.public(DIRECTORY)
    assert public.is_symlink()
    assert contents(public) == contents(files)
    found = manifest.read(public)
    manifest.verify(found, public)
    assert done.changed
    assert (found.digest, found.version) == (done.digest, done.version)


def test_the_digest_is_what_sha256sum_says(store: StorePaths, tmp_path: Path) -> None:
    done = publish(release(tmp_path / "r", b=b"2", a=b"1"), store)
    listed = subprocess.run(["sha256sum", "a", "b"], cwd=tmp_path / "r", capture_output=True, check=True).stdout
    summed = subprocess.run(["sha256sum"], input=listed, capture_output=True, check=True).stdout
    assert done.digest == "sha256:" + summed.decode().split()[0]


def test_the_same_again_changes_nothing(store: StorePaths, tmp_path: Path) -> None:
    made = release(tmp_path / "r", a=b"1")
    first = publish(made, store)
    before = store.public("Model-1B").lstat().st_mtime_ns
    second = publish(made, store)
    assert (second.version, second.changed) == (first.version, False)
    assert store.public("Model-1B").lstat().st_mtime_ns == before
    assert store.known("Model-1B") == (first.version,)


def test_the_version_before_is_kept_and_older_ones_go(store: StorePaths, tmp_path: Path) -> None:
    done = [publish(release(tmp_path / "r", a=bytes([number])), store) for number in range(3)]
    assert set(store.known("Model-1B")) == {done[1].version, done[2].version}
    assert store.previous("Model-1B") == done[1].version
    assert done[2].removed == (done[0].version,)


NAMES = st.text("abc", min_size=1, max_size=2)
RELEASES = st.dictionaries(NAMES, st.binary(max_size=20), min_size=1, max_size=4)


@given(old=RELEASES, new=RELEASES, cut=st.integers(0, 12), again=st.integers(0, 12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_killed_at_any_step_readers_see_the_old_version_or_the_new_one(
    tmp_path_factory: pytest.TempPathFactory, old: dict[str, bytes], new: dict[str, bytes], cut: int, again: int
) -> None:
    """Twice killed, then left alone: never a mixture, and in the end the new one, with the old one kept."""
    folder = tmp_path_factory.mktemp("kill")
    store = StorePaths(folder / "store")
    store.root.mkdir()
    publish(release(folder / "old", **old), store)
    made, public = release(folder / "new", **new), store.public("Model-1B")
    for steps in (cut, again):
        count = iter(range(steps))

        def step(_: str, count: object = count) -> None:
            if next(count, None) is None:  # type: ignore[call-overload]
                raise Killed

        with contextlib.suppress(Killed):
            publish(made, store, step=step)
        assert contents(public) in (old, new)
        manifest.verify(manifest.read(public), public)
    publish(made, store)
    assert contents(public) == new
    if old != new:
        kept = store.previous("Model-1B")
        assert kept is not None
        assert contents(store.version("Model-1B", kept)) == old


def test_a_publication_that_was_cut_off_goes_on_where_it_was(store: StorePaths, tmp_path: Path) -> None:
    made, copied = release(tmp_path / "r", a=b"1", b=b"2"), []

    def cut_at(name: str) -> Callable[[str], None]:
        def step(said: str) -> None:
            if said == name:
                raise Killed
            copied.append(said)

        return step

    with pytest.raises(Killed):
        publish(made, store, step=cut_at("copy b"))
    publish(made, store, step=copied.append)
    assert [said for said in copied if said.startswith("copy ")] == ["copy a", "copy b"]


def test_what_counts_as_copied_is_on_the_disk(
    store: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the next attempt does not copy it again."""
    synced, fsync = [], os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def cut(said: str) -> None:
        if said == "copy b":
            raise Killed

    monkeypatch.setattr(os, "fsync", note)
    with pytest.raises(Killed):
        publish(release(tmp_path / "r", a=b"1", b=b"2"), store, step=cut)
    content, record = (next(n for n, name in enumerate(synced) if key in name) for key in ("a.", "copied"))
    assert content < record


def test_a_file_that_was_replaced_since_the_cut_is_copied_again(store: StorePaths, tmp_path: Path) -> None:
    made = release(tmp_path / "r", a=b"1", b=b"2")

    def cut(said: str) -> None:
        if said == "verify":
            raise Killed

    with pytest.raises(Killed):
        publish(made, store, step=cut)
    publish(release(tmp_path / "r", a=b"9", c=b"3"), store)
    assert contents(store.public("Model-1B")) == {"a": b"9", "c": b"3"}


def test_a_store_that_is_too_small_is_said_with_what_is_missing(
    store: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release(tmp_path / "r", a=b"x" * 1024**2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=512 * 1024**2))
    with pytest.raises(
        NoSpaceError, match=r"lacks 0\.5 GiB for m: 0\.0 GiB to copy and 1\.0 GiB reserve, 0\.5 GiB free"
    ):
        writer.publish(made, store)
    assert not (store.versions("Model-1B") / INCOMING).exists()


def test_a_disk_that_reads_back_something_else_is_noticed(store: StorePaths, tmp_path: Path) -> None:
    made = release(tmp_path / "r", a=b"1")

    def spoil(said: str) -> None:
        if said == "verify":
            (store.incoming("Model-1B") / "a").write_bytes(b"0")

    with pytest.raises(PublishError, match="reads back differently"):
        publish(made, store, step=spoil)
    assert store.current("Model-1B") is None
    publish(made, store)
    assert contents(store.public("Model-1B")) == {"a": b"1"}


def test_a_source_that_changes_meanwhile_is_noticed(
    store: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, real = release(tmp_path / "r", a=b"1"), writer._copy_file

    def copy(origin: Path, *rest: object) -> object:
        facts = real(origin, *rest)  # type: ignore[arg-type]
        origin.write_bytes(b"longer")
        return facts

    monkeypatch.setattr(writer, "_copy_file", copy)
    with pytest.raises(PublishError, match="changed while it was copied"):
        publish(made, store)


def test_another_digest_than_the_registrys_is_not_published(store: StorePaths, tmp_path: Path) -> None:
    made = release(tmp_path / "r", a=b"1")
    with pytest.raises(PublishError, match=r"the registry says sha256:0{64}; they are another revision or damaged"):
        publish(made, store, expected_digest=f"sha256:{'0' * 64}")
    assert store.current("Model-1B") is None
    right = manifest.Manifest("m", {"a": manifest.hash_file(made.files["a"])}).digest
    assert publish(made, store, expected_digest=right).changed


def test_a_directory_that_somebody_made_by_hand_becomes_the_version_before(store: StorePaths, tmp_path: Path) -> None:
    by_hand = store.public("Model-1B")
    by_hand.mkdir()
    (by_hand / "a").write_bytes(b"0")
    publish(release(tmp_path / "r", a=b"1"), store)
    assert contents(by_hand) == {"a": b"1"}
    assert store.previous("Model-1B") == ADOPTED
    assert contents(store.version("Model-1B", ADOPTED)) == {"a": b"0"}


class TestManifest:
    @pytest.fixture
    def version(self, store: StorePaths, tmp_path: Path) -> Path:
        publish(release(tmp_path / "r", a=b"1"), store)
        return store.public("Model-1B").resolve()

    def test_a_damaged_file_is_named(self, version: Path) -> None:
        (version / "a").write_bytes(b"2")
        with pytest.raises(ManifestError, match=r"/a: differs from the manifest; publish the model again"):
            manifest.verify(manifest.read(version), version)

    def test_a_missing_file_is_named(self, version: Path) -> None:
        (version / "a").unlink()
        with pytest.raises(ManifestError, match=r"/a: cannot be read \(No such file"):
            manifest.verify(manifest.read(version), version)

    def test_a_manifest_that_contradicts_itself_is_refused(self, version: Path) -> None:
        path = version / manifest.FILE
        path.write_text(
            path.read_text(encoding="utf-8").replace('"size": 1', '"size": 1').replace("a", "b"), encoding="utf-8"
        )
        with pytest.raises(ManifestError):
            manifest.read(version)


class TestAlias:
    """As it was: `huddle-ai/language/hl` links to the base's files, with a prompt and a card of its own."""

    def test_it_links_to_its_bases_files_and_brings_its_own(
        self, run: Callable, store: StorePaths, files: Path
    ) -> None:
        run("publish", ALIAS)
        public = store.public(ALIAS_DIRECTORY)
        assert (public / "model.safetensors").is_symlink()
        assert not (public / "system_prompt.txt").is_symlink()
        assert {"model_info.json", "system_prompt.txt", *contents(files)} == set(contents(public))
        assert (public / "config.json").read_bytes() == (files / "config.json").read_bytes()
        manifest.verify(manifest.read(public), public)

    def test_the_links_hold_wherever_the_store_is_mounted(
        self, run: Callable, store: StorePaths, tmp_path: Path
    ) -> None:
        run("publish", ALIAS)
        elsewhere = tmp_path / "mnt"
        store.root.rename(elsewhere)
        assert (elsewhere / ALIAS_DIRECTORY / "config.json").read_text(encoding="utf-8")

    def test_a_new_base_takes_its_published_aliases_along(self, run: Callable, store: StorePaths, files: Path) -> None:
        run("publish", ALIAS)
        (files / "generation_config.json").write_text('{"new": true}', encoding="utf-8")
        done = run("publish", MODEL, "--from", str(files))
        assert [one["model"] for one in done["published"]] == [MODEL, ALIAS]
        assert "new" in (store.public(ALIAS_DIRECTORY) / "generation_config.json").read_text(encoding="utf-8")

    def test_an_aliass_own_prompt_survives_a_new_base(
        self, run: Callable, store: StorePaths, files: Path, tmp_path: Path
    ) -> None:
        own = tmp_path / "own"
        own.mkdir()
        (own / "system_prompt.txt").write_text("mine", encoding="utf-8")
        run("publish", ALIAS, "--from", str(own))
        (files / "generation_config.json").write_text('{"new": true}', encoding="utf-8")
        run("publish", MODEL, "--from", str(files))
        assert (store.public(ALIAS_DIRECTORY) / "system_prompt.txt").read_text(encoding="utf-8") == "mine"

    def test_a_base_version_that_an_alias_links_to_is_kept(
        self, run: Callable, store: StorePaths, known: Registry, files: Path
    ) -> None:
        """Even where the alias is not taken along, as when the registry has dropped it since."""
        run("publish", ALIAS)
        for number in range(4):
            (files / "generation_config.json").write_text(json.dumps({"n": number}), encoding="utf-8")
            publish(source.of_model(known.resolve(MODEL), files), store)
        folder = store.public(ALIAS_DIRECTORY)
        manifest.verify(manifest.read(folder), folder)
        assert len(store.known(DIRECTORY)) == 3, "the one that counts, the one before, the alias's"

    def test_an_alias_without_its_base_is_refused(self, run: Callable, known: Registry, tmp_path: Path) -> None:
        with pytest.raises(source.SourceError, match=f"alias of {MODEL}, which is not published yet"):
            source.of_alias(known, known.resolve(ALIAS), None, StorePaths(tmp_path))

    def test_a_base_with_aliases_is_not_removed(self, run: Callable, store: StorePaths) -> None:
        run("publish", ALIAS)
        with pytest.raises(Exception, match=f"{ALIAS} links to the files of {MODEL}; remove that first"):
            run("remove", MODEL, code=2)
        run("remove", ALIAS)
        run("remove", MODEL)
        assert run("published") == []

    def test_the_version_before_can_be_taken_back(self, run: Callable, store: StorePaths, files: Path) -> None:
        first = store.current(DIRECTORY)
        (files / "generation_config.json").write_text('{"new": true}', encoding="utf-8")
        second = run("publish", MODEL, "--from", str(files))["published"][0]["version"]
        assert run("rollback", MODEL) == {"ok": True, "version": first, "before": second}
        assert store.current(DIRECTORY) == first
        assert run("verify", MODEL)["version"] == first


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["publish", "nonsense", "--from", "."], "no model or alias 'nonsense'"),
        (["publish", MODEL, "--from", "/nonexistent"], "/nonexistent: is no directory"),
        (["publish", MODEL], "the hub's client is not installed"),
        (["publish", MODEL, "--from", "{files}", "--format", "/dev/sdz"], "--format is for the model disk of a node"),
        (["verify", MODEL], f"{MODEL} is not published in"),
    ],
)
def test_what_cannot_be_published_is_one_sentence_and_touches_nothing(
    words: list[str], sentence: str, store: StorePaths, files: Path
) -> None:
    done = CliRunner().invoke(app, [word.format(files=files) for word in words] + ["--store", str(store.root)])
    assert sentence in str(done.exception)
    assert list(store.root.iterdir()) == []


def test_files_that_no_engine_could_load_are_refused(store: StorePaths, files: Path) -> None:
    (files / "model.safetensors").write_bytes(b"short")
    done = CliRunner().invoke(app, ["publish", MODEL, "--from", str(files), "--store", str(store.root)])
    assert "is not a safetensors file" in str(done.exception)


def test_a_machine_that_is_no_node_needs_a_store(files: Path) -> None:
    done = CliRunner().invoke(app, ["publish", MODEL, "--from", str(files)])
    assert "this machine is no node" in str(done.exception)


def test_the_hubs_token_is_in_the_environment_of_its_client_only(
    known: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, token = tmp_path / "hf", tmp_path / "token"
    program.write_text('#!/bin/bash\necho "$@" >words\necho "$HF_TOKEN" >token-seen\n', encoding="utf-8")
    program.chmod(0o755)
    token.write_text("canary\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    target = hub.download(known.resolve(MODEL).model, program=program, token_file=token, scratch=tmp_path / "scratch")
    assert "canary" not in (tmp_path / "words").read_text(encoding="utf-8")
    assert (tmp_path / "token-seen").read_text(encoding="utf-8") == "canary\n"
    assert target == tmp_path / "scratch" / DIRECTORY


def test_a_refusal_of_the_hub_says_what_to_do(known: Registry, tmp_path: Path) -> None:
    program = tmp_path / "hf"
    program.write_text("#!/bin/bash\necho '401 gated' >&2\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    with pytest.raises(hub.HubError, match=r"401 gated; a model that needs a licence needs the secret model_hub_token"):
        hub.download(known.resolve(MODEL).model, program=program, token_file=tmp_path / "no", scratch=tmp_path / "s")


def test_a_person_is_told_what_nodes_do_with_it(store: StorePaths, files: Path) -> None:
    words = ["publish", MODEL, "--from", str(files), "--store", str(store.root)]
    first, again = (CliRunner().invoke(app, words).stdout.splitlines() for _ in range(2))
    assert first[-1].startswith("nodes take it when a bundle is applied to them")
    assert again[-1].startswith(f"{MODEL} is published already: version ")
