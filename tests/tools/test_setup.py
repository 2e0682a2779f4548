"""Finding a Python, setting up .venv, installing Debian packages: by real scripts, with a PATH of our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.engine.versions import ROOT
from tools.setup import environment

SYSTEM = "/usr/bin:/bin"


def program(folder: Path, name: str, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def run(*command: str | Path, path: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": path, "HOME": "/nonexistent", **variables}
    return subprocess.run([str(part) for part in command], env=environ, capture_output=True, text=True, check=False)


def test_find_python_passes_by_shims_that_fail_and_pythons_that_are_old(tmp_path: Path):
    program(tmp_path, "python3.11", 'echo "version 3.11 is not installed" >&2; exit 127')
    program(tmp_path, "python3", "exit 1")
    good = program(tmp_path, "python3.12", f'exec {sys.executable} "$@"')
    answer = run("/bin/sh", ROOT / "tools" / "setup" / "find_python.sh", path=str(tmp_path))
    assert (answer.returncode, answer.stdout.strip(), answer.stderr) == (0, str(good), "")


def test_find_python_says_what_to_install(tmp_path: Path):
    answer = run("/bin/sh", ROOT / "tools" / "setup" / "find_python.sh", path=str(tmp_path))
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert "No Python 3.11 or newer" in answer.stderr


def test_setup_does_nothing_when_nothing_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(environment, "VENV", tmp_path)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    installed: list[Path] = []
    monkeypatch.setattr(environment, "uv", lambda _: Path("uv"))
    monkeypatch.setattr(environment, "install", lambda program: (installed.append(program), write_stamp()))
    monkeypatch.setattr(environment, "cache_root", lambda: tmp_path / "cache")

    def write_stamp() -> None:
        program(tmp_path / "bin", "python", "")
        (tmp_path / "stamp").write_text(environment.wanted_stamp())

    assert not environment.is_current()
    assert [environment.main(), environment.main()] == [0, 0]
    assert installed == [Path("uv")]
    lock = tmp_path / "dev.lock"
    lock.write_bytes(environment.LOCK.read_bytes() + b"# changed\n")
    monkeypatch.setattr(environment, "LOCK", lock)
    assert not environment.is_current()


def test_install_checks_hashes_and_adds_our_own_packages_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(environment, "VENV", tmp_path)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    commands: list[list[str]] = []
    monkeypatch.setattr(environment, "call", lambda command: commands.append([str(part) for part in command]))
    environment.install(Path("uv"))
    created, locked, own, compiled = commands
    assert created[1] == "venv"
    assert "--require-hashes" in locked
    assert locked[-1] == str(environment.LOCK)
    assert {"--no-deps", "--no-build-isolation"} <= set(own)
    assert own.count("-e") == 2
    assert compiled[-1] == "tools.setup.bytecode"
    assert environment.STAMP.read_text() == environment.wanted_stamp()


def test_a_failing_step_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture):
    monkeypatch.setattr(environment, "VENV", tmp_path)
    monkeypatch.setattr(environment, "STAMP", tmp_path / "stamp")
    monkeypatch.setattr(environment, "cache_root", lambda: tmp_path / "cache")
    monkeypatch.setattr(environment, "uv", lambda _: program(tmp_path / "bin", "uv", "echo no route >&2; exit 7"))
    assert environment.main() == 1
    assert capfd.readouterr().err.splitlines()[-2:] == [
        "no route",
        "setup failed: uv ended with exit status 7 (its message is above)",
    ]
    assert not environment.is_current()


@pytest.fixture
def apt_path(tmp_path: Path) -> Path:
    """A PATH on which bash and a few basics exist, and nothing else."""
    for name in ("bash", "dirname", "cat", "mktemp", "rm", "tail", "env"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(next(p for d in SYSTEM.split(":") if (p := Path(d) / name).exists()))
    return tmp_path / "bin"


def test_apt_is_silent_when_all_is_there(apt_path: Path):
    program(apt_path, "shellcheck", "")
    answer = run(ROOT / "tools" / "setup" / "apt.sh", "lint", path=str(apt_path))
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


def test_apt_says_in_one_sentence_what_to_install(apt_path: Path):
    answer = run(ROOT / "tools" / "setup" / "apt.sh", "lint", path=str(apt_path))
    assert answer.returncode == 2
    assert answer.stderr == (
        "Missing programs: install the packages shellcheck (Debian: sudo apt-get install shellcheck), "
        "then run the command again.\n"
    )


@pytest.mark.parametrize("lists_are_old", [False, True])
def test_apt_installs_by_name_and_refreshes_old_lists(apt_path: Path, tmp_path: Path, lists_are_old: bool):
    log = tmp_path / "log"
    program(apt_path, "sudo", 'shift; exec "$@"')
    program(apt_path, "true", "")
    refreshed = tmp_path / "refreshed"
    fails = f'[ "$1" = install ] && [ ! -e {refreshed} ] && exit 100' if lists_are_old else ":"
    touch = f'[ "$1" = update ] && : >{refreshed}'
    program(apt_path, "apt-get", f'echo "$@" >>{log}\n{touch}\n{fails}\nexit 0')
    answer = run(ROOT / "tools" / "setup" / "apt.sh", "lint", path=str(apt_path))
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == "installing Debian packages: shellcheck\n"
    asked = [line.split()[0] for line in log.read_text().splitlines()]
    assert asked == (["install", "update", "install"] if lists_are_old else ["install"])
    assert log.read_text().splitlines()[-1].endswith("--no-install-recommends shellcheck")


def test_every_listed_package_has_a_purpose_and_a_proof():
    lines = (ROOT / "tools" / "setup" / "apt-packages.txt").read_text().splitlines()
    rows = [line.split() for line in lines if line and not line.startswith("#")]
    assert rows
    assert all(len(row) == 3 for row in rows)
    assert rows == sorted(rows)
    used = "\n".join(path.read_text() for path in [ROOT / "Makefile", *ROOT.glob(".ci/*")])
    assert {row[0] for row in rows} == {purpose for purpose in {row[0] for row in rows} if f"apt.sh {purpose}" in used}


def test_make_help_names_every_target():
    answer = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ)
    targets = {
        line.split(":")[1].strip()
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith(".PHONY:")
    }
    assert {"rehearse", "test", "quick", "lint", "preview", "up", "destroy", "lock", "clean", "help"} <= targets
    for target in targets:
        assert f"make {target} " in answer.stdout


def test_setting_up_needs_nothing_that_it_installs():
    """A fresh clone has this tree and a Python, and neither packages nor our own wheel."""
    bare = [sys.executable, "-S", "-c", "import tools.setup.environment"]
    done = subprocess.run(bare, cwd=ROOT, env={"PATH": SYSTEM}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
