"""A published version that the disk has damaged since: publishing the same again makes it whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from huddle.errors import HuddleError
from huddle.models.cli import app
from huddle.publish import manifest
from huddle.publish.paths import StorePaths
from tests.serving.publish.conftest import ALIAS, ALIAS_DIRECTORY, DIRECTORY, MODEL, publish, release


def flip(path: Path) -> None:
    """One bit of the last byte but one, which keeps the length."""
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def lose(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def make_a_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def check(store: StorePaths, directory: str = "Model-1B") -> None:
    public = store.public(directory)
    manifest.verify(manifest.read(public), public)


@pytest.mark.parametrize("damage", [flip, lose, shorten, make_a_link])
@pytest.mark.parametrize("name", ["a", "deep/b", manifest.FILE])
def test_the_same_again_replaces_what_is_damaged_and_nothing_else(
    damage: Callable[[Path], None], name: str, store: StorePaths, tmp_path: Path
) -> None:
    made = release(tmp_path / "r", **{"a": b"first", "deep/b": b"second", "c": b"third"})
    first = publish(made, store)
    folder = store.version("Model-1B", first.version)
    untouched = (folder / "c").stat().st_ino
    damage(folder / name)
    second = publish(made, store)
    assert (second.version, second.changed, second.repaired) == (first.version, False, (name,))
    check(store)
    assert (folder / "c").stat().st_ino == untouched
    assert not store.incoming("Model-1B").exists()
    assert publish(made, store).repaired == ()


def test_cut_off_while_it_replaces_the_next_publication_finishes(
    store: StorePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = release(tmp_path / "r", a=b"first", b=b"second")
    folder = store.version("Model-1B", publish(made, store).version)
    flip(folder / "a")
    flip(folder / "b")
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self == store.incoming("Model-1B") / "b":
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", replace)
        publish(made, store)
    assert (folder / "a").read_bytes() == b"first"
    assert publish(made, store).repaired == ("b",)
    check(store)


def test_what_cannot_be_replaced_is_said(store: StorePaths, tmp_path: Path) -> None:
    made = release(tmp_path / "r", a=b"first")
    folder = store.version("Model-1B", publish(made, store).version)
    (folder / "a").unlink()
    (folder / "a").mkdir()
    with pytest.raises(
        HuddleError, match=rf"/a: is damaged and cannot be replaced \(.*\); move {re.escape(str(folder))}"
    ):
        publish(made, store)


def test_the_command_says_that_it_has_repaired(store: StorePaths, files: Path, run: Callable) -> None:
    flip(store.public(DIRECTORY) / "model.safetensors")
    with pytest.raises(HuddleError, match="differs from the manifest; publish the model again"):
        run("verify", MODEL, code=2)
    done = CliRunner().invoke(app, ["publish", MODEL, "--from", str(files), "--store", str(store.root)])
    assert f"{MODEL} was damaged, model.safetensors replaced: version" in done.stdout
    run("verify", MODEL)


def test_a_repaired_base_is_repaired_for_its_aliases(store: StorePaths, files: Path, run: Callable) -> None:
    run("publish", ALIAS)
    flip(store.public(DIRECTORY) / "model.safetensors")
    done = run("publish", MODEL, "--from", str(files))["published"]
    assert [(one["model"], one["repaired"]) for one in done] == [(MODEL, ["model.safetensors"]), (ALIAS, [])]
    check(store, ALIAS_DIRECTORY)


@pytest.mark.parametrize("name", ["system_prompt.txt", manifest.FILE])
def test_an_aliass_own_damaged_files_are_not_taken_for_new_ones(
    name: str, store: StorePaths, tmp_path: Path, run: Callable
) -> None:
    """Where an alias is published again without files, its published ones are the source: they must be whole."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "system_prompt.txt").write_text("mine", encoding="utf-8")
    version = run("publish", ALIAS, "--from", str(own))["published"][0]["version"]
    shorten(store.public(ALIAS_DIRECTORY) / name)
    with pytest.raises(HuddleError, match=f"publish the model again, with {ALIAS}'s own files by --from"):
        run("publish", ALIAS, code=2)
    done = run("publish", ALIAS, "--from", str(own))["published"][0]
    assert (done["version"], done["repaired"]) == (version, [name])
    check(store, ALIAS_DIRECTORY)
