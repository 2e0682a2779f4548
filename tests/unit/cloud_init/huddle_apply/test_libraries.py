"""A bundle's environments: made once for each lock, beside the one in use, from hashed requirements only."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.installed import libraries
from cloud_init.huddle_apply.ledger import Ledger
from cloud_init.huddle_apply.machine import boot, commands
from cloud_init.huddle_apply.paths import NodePaths
from cloud_init.huddle_apply.unpacked import Unpacked

PYTHON3 = r"""#!/bin/bash
set -eu
echo "python3 $*" >>"$FAKE/calls"
case "$1 $2" in
    -c*) echo 3.12 ;;
    "-m venv")
        mkdir -p "$3/bin"
        cp "$FAKE/tool" "$3/bin/python"
        cp "$FAKE/tool" "$3/bin/uv"
        ;;
    "-m compileall") touch "$4/compiled" ;;
esac
"""
SYNC = r"""#!/bin/bash
echo "sync $1 $(basename "$2") $([[ -e $2/.complete ]] || echo before it counts as complete)" >>"$FAKE/calls"
"""
TOOL = r"""#!/bin/bash
echo "$(basename "$0") $* [${UV_INDEX_URL:-}] [$(basename "${UV_CACHE_DIR:-}")]" >>"$FAKE/calls"
[[ ! -e "$FAKE/refuse" || "$0" != */uv ]] || { echo "hash mismatch for torch"; exit 1; }
"""


class Machine:
    def __init__(self, folder: Path) -> None:
        self.fake, self.paths = folder, NodePaths(folder / "root")
        (folder / "bin").mkdir()
        for path, body in (("bin/python3", PYTHON3), ("bin/sync", SYNC), ("tool", TOOL)):
            (folder / path).write_text(body, encoding="utf-8")
            (folder / path).chmod(0o755)

    def bundle(self, name: str, lock: str, code: str = "", **more: str) -> Unpacked:
        path = self.paths.bundles / name
        (path / "requirements").mkdir(parents=True)
        (path / "wheels").mkdir()
        with zipfile.ZipFile(path / "wheels" / "huddle-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(zipfile.ZipInfo("huddle/cli.py"), code)
        for file, content in {"installer": "uv==1", "engine": lock, **more}.items():
            (path / "requirements" / f"{file}.lock").write_text(content, encoding="utf-8")
        return Unpacked(name, path, {"python": "3.12"}, {})

    def calls(self) -> list[str]:
        path = self.fake / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return made


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each command may take, where every one of them takes ten seconds; none is run."""
    seen: list[float] = []

    def run(argv: list[str], *, deadline_s: float, env: dict[str, str] | None = None) -> str:
        seen.append(deadline_s)
        return "3.12"

    monkeypatch.setattr(commands, "run", run)
    monkeypatch.setattr(commands, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(seen)))
    return seen


def test_all_commands_of_an_environment_share_one_deadline(machine: Machine, allowed: list[float]) -> None:
    """Azure ends an apply after its time: each command with the whole deadline would go past it."""
    libraries.install(machine.paths, machine.bundle("a", "torch==1"), 100)
    _, *others = allowed  # the first asks which Python it is
    assert others == [90, 80, 70, 60, 50, 40]


def test_all_commands_for_packages_share_one_deadline(allowed: list[float], tmp_path: Path) -> None:
    left_s = commands.countdown(100)
    boot.install_packages(["no-such-package"], left_s)
    boot.hold_packages(tmp_path, Ledger(NodePaths(tmp_path), "node", "digest"), left_s)
    assert allowed == [100, 90, 80]


def test_an_environment_is_made_from_hashed_requirements(machine: Machine) -> None:
    bundle = machine.bundle("one", "vllm==1")
    libraries.install(machine.paths, bundle, 30)
    path = (bundle.path / "venv").resolve()
    assert path.parent == machine.paths.venvs
    requirements = bundle.path / "requirements"
    hashed = "--require-hashes --no-deps --requirement"
    assert machine.calls()[1:5] == [
        f"python3 -m venv {path}",
        f"python -m pip install --quiet --disable-pip-version-check {hashed} {requirements}/installer.lock [] [cache]",
        f"uv pip install --quiet --compile-bytecode --python {path}/bin/python {hashed} {requirements}/engine.lock"
        " [] [cache]",
        f"sync --file-system {path.name} before it counts as complete",
    ]


def test_the_engine_for_the_cpu_finds_its_own_version(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM asks for the version of `vllm`, and takes the CPU where that says so."""
    ensure = libraries._complete

    def complete(path: Path, deadline_s: float) -> None:
        assert list(path.glob("lib/python3.12/site-packages/vllm-1.2+cpu.dist-info/METADATA")), "named before it counts"
        ensure(path, deadline_s)

    def names(path: Path, lock: Path) -> None:
        (path / "lib/python3.12/site-packages").mkdir(parents=True)
        named(path, lock)

    named = libraries._name_cpu_engine
    monkeypatch.setattr(libraries, "_name_cpu_engine", names)
    monkeypatch.setattr(libraries, "_complete", complete)
    bundle = machine.bundle("cpu", "torch==2\nvllm-cpu==1.2 --hash=sha256:ab\n")
    libraries._environment(machine.paths, bundle, "engine", commands.countdown(30))
    (text,) = (bundle_path.read_text() for bundle_path in machine.paths.venvs.glob("*/lib/*/*/*.dist-info/METADATA"))
    assert "Name: vllm\nVersion: 1.2+cpu\n" in text


def test_the_same_lock_is_not_installed_again(machine: Machine) -> None:
    first, second = machine.bundle("one", "vllm==1"), machine.bundle("two", "vllm==1")
    libraries.install(machine.paths, first, 30)
    machine.calls()
    libraries.install(machine.paths, second, 30)
    assert machine.calls() == []
    assert (second.path / "venv").resolve() == (first.path / "venv").resolve()


def test_another_lock_gets_an_environment_beside_it(machine: Machine) -> None:
    first, second = machine.bundle("one", "vllm==1"), machine.bundle("two", "vllm==2")
    libraries.install(machine.paths, first, 30)
    libraries.install(machine.paths, second, 30)
    assert (second.path / "venv").resolve() != (first.path / "venv").resolve()


def test_an_interrupted_installation_starts_anew(machine: Machine) -> None:
    bundle = machine.bundle("one", "vllm==1")
    (machine.fake / "refuse").touch()
    with pytest.raises(ApplyError, match="hash mismatch for torch"):
        libraries.install(machine.paths, bundle, 30)
    assert not (bundle.path / "venv").exists()
    left = next(machine.paths.venvs.glob("engine-*")) / "left"
    left.touch()
    (machine.fake / "refuse").unlink()
    libraries.install(machine.paths, bundle, 30)
    assert not left.exists()


def test_jupyterlab_has_an_environment_of_its_own(machine: Machine) -> None:
    bundle = machine.bundle("one", "vllm==1", jupyter="jupyterlab==1")
    libraries.install(machine.paths, bundle, 30)
    assert (bundle.path / "jupyter").resolve().name.startswith("jupyter-")
    assert (bundle.path / "jupyter").resolve() != (bundle.path / "venv").resolve()


def test_an_operators_mirror_is_used(machine: Machine) -> None:
    path = machine.paths.install_environment
    path.parent.mkdir(parents=True)
    path.write_text("# ours\nUV_INDEX_URL = https://mirror.example/simple\n", encoding="utf-8")
    libraries.install(machine.paths, machine.bundle("one", "vllm==1"), 30)
    assert "[https://mirror.example/simple]" in next(line for line in machine.calls() if line.startswith("uv"))


def test_another_python_is_refused_before_anything_is_made(machine: Machine) -> None:
    bundle = machine.bundle("one", "vllm==1")
    other = Unpacked("one", bundle.path, {"python": "3.99"}, {})
    with pytest.raises(ApplyError, match=r"this machine has Python 3\.12; the libraries are locked for Python 3\.99"):
        libraries.install(machine.paths, other, 30)
    assert not machine.paths.venvs.exists()


def test_our_package_is_unpacked_and_compiled_once_for_each_wheel(machine: Machine) -> None:
    one, same = machine.bundle("one", "vllm==1", "x = 1"), machine.bundle("two", "vllm==1", "x = 1")
    another = machine.bundle("three", "vllm==1", "x = 2")
    libraries.install(machine.paths, one, 30)
    package = (one.path / "site").resolve()
    assert (package / "huddle/cli.py").read_text(encoding="utf-8") == "x = 1"
    assert (package / "compiled").exists()
    assert machine.calls()[-1] == f"sync --file-system {package.name} before it counts as complete"
    libraries.install(machine.paths, same, 30)
    assert (same.path / "site").resolve() == package
    assert machine.calls() == []
    libraries.install(machine.paths, another, 30)
    assert (another.path / "site/huddle/cli.py").read_text(encoding="utf-8") == "x = 2"


def test_a_package_that_was_not_whole_is_unpacked_anew(machine: Machine) -> None:
    bundle = machine.bundle("one", "vllm==1", "x = 1")
    libraries.install(machine.paths, bundle, 30)
    package = (bundle.path / "site").resolve()
    (package / ".complete").unlink()  # a power cut before the end
    (package / "huddle/cli.py").write_text("", encoding="utf-8")
    libraries.install(machine.paths, bundle, 30)
    assert (package / "huddle/cli.py").read_text(encoding="utf-8") == "x = 1"
