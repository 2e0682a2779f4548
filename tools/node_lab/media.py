"""Disks for guests: a NoCloud seed, a folder as a CD, a model disk, blank disks. All need no root."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from huddle import tiny_model
from huddle.publish import disk

BLANK_GIB = 6
"""Of a local NVMe disk, sparse: above what staging keeps free (4 GiB)."""
_MODEL_DISK_GIB = 3
"""Sparse: above what publishing keeps free (1 GiB)."""


def seed(target: Path, user_data: str, network: Mapping[str, object], instance: str) -> Path:
    """A NoCloud seed: what a VM gets as customData, and the address that Azure's DHCP would lease to it."""
    with TemporaryDirectory(dir=target.parent) as folder:
        content = {
            "user-data": user_data,
            "meta-data": json.dumps({"instance-id": instance}),
            "network-config": json.dumps(network),
        }
        for name, text in content.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        return _cd(target, "cidata", Path(folder))


def wheels(target: Path, folder: Path) -> Path:
    """A folder of wheels as a CD."""
    return _cd(target, "wheels", folder)


def _cd(target: Path, label: str, folder: Path) -> Path:
    command = ["genisoimage", "-quiet", "-joliet-long", "-rational-rock", "-volid", label, "-output", str(target)]
    subprocess.run([*command, str(folder)], check=True)
    return target


_STORE = ["mkfs.ext4", "-q", "-O", "mmp,^orphan_file", "-L", disk.LABEL, "-m", "0", "-E", "root_owner=0:0"]
"""As `huddle models publish --format` makes a store."""


def model_disk(target: Path, directory: str) -> Path:
    """An ext4 disk with one small model in it, as a publisher leaves it on the shared disk."""
    with TemporaryDirectory(dir=target.parent) as folder:
        tiny_model.make(Path(folder, directory))
        blank(target, _MODEL_DISK_GIB)
        subprocess.run([*_STORE, "-d", folder, str(target)], check=True)
    return target


def blank(target: Path, gib: float = BLANK_GIB) -> Path:
    """A disk with nothing on it, sparse; what was there is gone."""
    target.unlink(missing_ok=True)
    with target.open("wb") as file:
        file.truncate(round(gib * 1024**3))
    return target


def foreign(target: Path) -> Path:
    """A disk with a file system that is not ours."""
    subprocess.run(["mkfs.ext4", "-q", "-L", "somebodys", str(blank(target))], check=True)
    return target


def overlay(target: Path, base: Path) -> Path:
    """A disk that begins as another and keeps its own changes."""
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base), str(target)]
    subprocess.run(command, check=True)
    return target
