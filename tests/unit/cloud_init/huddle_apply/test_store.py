"""The shared disk, opened again: nobody mounts it while a publication writes to it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from cloud_init.huddle_apply.failure import ApplyError
from cloud_init.huddle_apply.machine import commands
from cloud_init.huddle_apply.models import store
from cloud_init.huddle_apply.paths import NodePaths

ROOT = NodePaths(Path("/"))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A real ext4 file system in a file."""
    image = tmp_path / "disk"
    with image.open("wb") as file:
        file.truncate(8 * 1024**2)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    return image


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(commands, "run", lambda argv, **_: calls.append(" ".join(argv)) or "")
    monkeypatch.setattr(store, "_POLL_S", 0.01)
    return calls


def facts(device: Path | None) -> dict[str, Any]:
    return {"device": device and str(device), "unit": "mnt-models.mount", "writer": "node-1"}


def mark_as_written(image: Path, *, written: bool = True) -> None:
    """As the kernel does when it mounts for writing: the flag `needs_recovery`."""
    word = f"feature {'' if written else '-'}needs_recovery"
    subprocess.run(["debugfs", "-w", "-R", word, str(image)], capture_output=True, check=True)


def test_it_is_unmounted_forgotten_and_mounted_again(disk: Path, called: list[str]) -> None:
    store.reopen(ROOT, facts(disk), 1)
    flush = f"blockdev --flushbufs {disk}"
    assert called == [flush, "systemctl stop mnt-models.mount", flush, "systemctl start mnt-models.mount"]


def test_a_disk_that_is_being_written_is_waited_for_and_then_said(disk: Path, called: list[str]) -> None:
    mark_as_written(disk)
    with pytest.raises(ApplyError, match=r"marked as being written for 0 s; .* on node-1, one was cut"):
        store.reopen(ROOT, facts(disk), 0.05)
    assert not [call for call in called if "systemctl" in call]
    mark_as_written(disk, written=False)
    store.reopen(ROOT, facts(disk), 0.05)
    assert called[-1] == "systemctl start mnt-models.mount"


@pytest.mark.parametrize("device", [None, Path("/dev/disk/huddle/absent")])
def test_a_share_and_a_disk_that_is_not_attached_are_left_alone(device: Path | None, called: list[str]) -> None:
    store.reopen(ROOT, facts(device), 1)
    assert called == []


def test_a_disk_that_cannot_be_read_is_said(called: list[str], tmp_path: Path) -> None:
    """Not raised: a node that has its copy goes on without the store."""
    with pytest.raises(ApplyError, match=r"/disk cannot be read \(Is a directory\); see dmesg"):
        (tmp_path / "disk").mkdir()
        store.reopen(ROOT, facts(tmp_path / "disk"), 1)
    assert called == [f"blockdev --flushbufs {tmp_path}/disk"]


def test_what_is_not_ext4_is_the_mounts_business() -> None:
    assert not store.being_written(b"\xff" * 2048)
    assert not store.being_written(b"")
