"""huddle-hold: driver and kernel stay as they are, also where another program has dpkg's lock.

With the real apt-mark and dpkg, on a database of the test's own.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cloud_init.templating import text
from tests.unit.cloud_init.node import FakeNode, apply, deliver
from tools.deadlines import scaled, until

INSTALLED = (
    "nvidia-open-580",
    "libnvidia-compute-580",
    "cuda-toolkit-13-0",
    "datacenter-gpu-manager-4-core",
    "linux-image-azure",
    "linux-modules-6.8.0-1031-azure",
)
HELD, REMOVED, OTHERS = "libnccl2", "nvidia-open-570", ("linux-libc-dev", "curl")
PACKAGE = """\
Package: {name}
Status: {status}
Section: misc
Maintainer: nobody <nobody@example.com>
Architecture: amd64
Version: 1.0
Description: x

"""


class Machine:
    """A package database, and the program on it."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "dpkg"
        for name in ("updates", "info", "triggers"):
            (self.database / name).mkdir(parents=True)
        rows = [
            *((name, "install ok installed") for name in (*INSTALLED, *OTHERS)),
            (HELD, "hold ok installed"),
            (REMOVED, "deinstall ok config-files"),
        ]
        status = "".join(PACKAGE.format(name=name, status=status) for name, status in rows)
        (self.database / "status").write_text(status, encoding="utf-8")
        (self.database / "available").touch()
        settings = folder / "apt.conf"
        settings.write_text(
            f'Dir::State::status "{self.database}/status";\nDPkg::Options {{ "--admindir={self.database}"; }};\n',
            encoding="utf-8",
        )
        self.program = folder / "huddle-hold"
        self.program.write_text(text("bin/huddle-hold"), encoding="utf-8")
        self.program.chmod(0o755)
        self.environment = {
            "PATH": os.environ["PATH"],
            "APT_CONFIG": str(settings),
            "DPKG_ADMINDIR": str(self.database),
        }

    def start(self, hold_s: float) -> subprocess.Popen[str]:
        environment = {**self.environment, "HUDDLE_HOLD_S": f"{hold_s:.0f}"}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([self.program], env=environment, text=True, **pipes)

    def run(self, hold_s: float = 120) -> tuple[int, str]:
        process = self.start(scaled(hold_s))
        _, said = process.communicate(timeout=scaled(300))
        return process.returncode, said

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Another program has the lock that every front end of dpkg takes."""
        with (self.database / "lock-frontend").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield

    @property
    def held(self) -> set[str]:
        shown = subprocess.run(
            ["apt-mark", "showhold"], env=self.environment, capture_output=True, text=True, check=True
        )
        return set(shown.stdout.split())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_gpu_packages_and_the_kernel_are_held(machine: Machine) -> None:
    assert machine.run() == (0, "")
    assert machine.held == {*INSTALLED, HELD}


def test_a_busy_lock_is_waited_for(machine: Machine, tmp_path: Path) -> None:
    """apt-mark itself gives up at once, whatever apt's lock timeout says: it is tried until the lock is free."""
    tries = tmp_path / "tries"
    front = tmp_path / "bin/apt-mark"
    front.parent.mkdir()
    front.write_text(f'#!/bin/sh\n/usr/bin/apt-mark "$@"\ncode=$?\necho $code >> {tries}\nexit $code\n')
    front.chmod(0o755)
    machine.environment["PATH"] = f"{front.parent}:{machine.environment['PATH']}"
    with machine.busy():
        process = machine.start(scaled(120))
        until(tries.exists, "apt-mark has been refused once")
        assert tries.read_text().split()[0] == "100"
    _, said = process.communicate(timeout=scaled(300))
    assert (process.returncode, said) == (0, "")
    assert {*INSTALLED, HELD} == machine.held


def test_a_lock_that_is_never_free_is_said(machine: Machine) -> None:
    with machine.busy():
        code, said = machine.run(hold_s=1)
    assert code == 1
    (sentence,) = said.splitlines()
    assert sentence.startswith(f"huddle-hold: not held: {' '.join(sorted(INSTALLED, key=said.index))}; ")
    assert "lock" in sentence


def test_what_is_held_already_needs_no_lock(machine: Machine) -> None:
    machine.run()
    with machine.busy():
        assert machine.run(hold_s=0) == (0, "")


def test_each_bundle_holds_what_the_one_before_could_not(
    node: FakeNode, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node serves meanwhile."""
    for name, value in machine.environment.items():
        if name != "PATH":
            monkeypatch.setenv(name, value)
    fake, real = node.fake / "bin/dpkg-query", "/usr/bin/dpkg-query"
    usual = fake.read_text().partition("set -eu\n")[2]
    fake.write_text(f'#!/bin/bash\ncase "$*" in *Status-Abbrev*) exec {real} "$@" ;; esac\n{usual}')
    monkeypatch.setattr("cloud_init.huddle_apply.machine.boot.HOLD_S", 1)
    bundle = deliver(node.port)
    with machine.busy():
        assert apply(node, bundle) == 0
    (warning,) = node.status()["warnings"]
    assert warning.startswith("the GPU driver and the kernel can be upgraded by accident: ")
    assert "not held: " in warning
    assert machine.held == {HELD}
    assert apply(node, bundle) == 0
    assert machine.held == {*INSTALLED, HELD}
    assert node.status()["warnings"] == []
