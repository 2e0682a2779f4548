"""A disk that two hosts have attached: one image behind two loop devices, each with a cache of its own.

The first device is the loader's, the second another node's, mounted `ro,noload` as on a node. Root is needed for that.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from huddle.errors import HuddleError
from huddle.publish import disk, manifest, writer
from huddle.publish.disk import DiskError
from huddle.publish.paths import StorePaths
from huddle.publish.session import SharedDisk
from huddle.publish.source import Source

pytestmark = pytest.mark.slow


def sh(*argv: str | Path) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout.strip()


@dataclass(frozen=True)
class Hosts:
    """The loader's store, and how another node sees the same disk."""

    image: Path
    loader: SharedDisk
    other_device: Path
    other_mount: Path

    def publish(self, folder: Path, **options: object) -> None:
        files = {path.name: path for path in folder.iterdir()}
        with self.loader.writable():
            writer.publish(Source("m", "Model-1B", files), self.loader.paths, reserve_bytes=0, **options)  # type: ignore[arg-type]

    def mount_other(self) -> None:
        """As a node mounts it: read-only, without replaying the journal."""
        disk.flush(self.other_device)
        sh("mount", "-t", "ext4", "-o", "ro,noload", self.other_device, self.other_mount)

    def read_other(self) -> dict[str, bytes]:
        public = self.other_mount / "Model-1B"
        manifest.verify(manifest.read(public), public)
        return {path.name: path.read_bytes() for path in public.iterdir() if path.name != manifest.FILE}

    def unmount_other(self) -> None:
        sh("umount", self.other_mount)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    assert os.geteuid() == 0, "loop devices and mounts need root"
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * 1024**2)
    devices = [Path(sh("losetup", "--find", "--show", image)) for _ in range(2)]
    mounts = [tmp_path / "models", tmp_path / "other"]
    for folder in mounts:
        folder.mkdir()
    loader = SharedDisk(StorePaths(mounts[0]), devices[0], devices[0], tmp_path / "lock")
    try:
        yield Hosts(image, loader, devices[1], mounts[1])
    finally:
        for folder in mounts:
            subprocess.run(["umount", "--quiet", "--recursive", str(folder)], check=False)
        for device in devices:
            subprocess.run(["losetup", "--detach", str(device)], check=False)


@pytest.fixture
def release(tmp_path: Path) -> Path:
    folder = tmp_path / "release"
    folder.mkdir()
    (folder / "config.json").write_bytes(b"{}")
    (folder / "weights").write_bytes(os.urandom(3 * 1024**2))
    return folder


def test_a_publication_reaches_the_other_node_whole_and_leaves_the_disk_read_only(hosts: Hosts, release: Path) -> None:
    hosts.publish(release)
    superblock = disk.read(hosts.loader.device)
    assert superblock is not None
    assert (superblock.label, superblock.needs_recovery) == (disk.LABEL, False)
    assert disk.writer(hosts.loader.device, superblock) is None
    assert "ro," in sh("findmnt", "--noheadings", "--output", "OPTIONS", hosts.loader.paths.root)
    hosts.mount_other()
    first = hosts.read_other()
    assert first == {path.name: path.read_bytes() for path in release.iterdir()}

    # The other node keeps its mount through the next publication. What it reads then is checked against the manifest,
    # and the version that it knows is still there.
    (release / "weights").write_bytes(b"new")
    hosts.publish(release)
    assert hosts.read_other() == first
    hosts.unmount_other()
    hosts.mount_other()
    assert hosts.read_other()["weights"] == b"new"


def test_while_one_node_writes_everybody_can_see_it_and_no_second_one_can(hosts: Hosts, release: Path) -> None:
    hosts.publish(release)
    with hosts.loader.writable():
        superblock = disk.read(hosts.other_device)
        assert superblock is not None
        assert superblock.needs_recovery
        holder = disk.writer(hosts.other_device, superblock)
        assert holder is not None
        assert holder.node == os.uname().nodename
        second = subprocess.run(
            ["mount", "-t", "ext4", str(hosts.other_device), str(hosts.other_mount)], capture_output=True, check=False
        )
        assert second.returncode != 0, "multi-mount protection must refuse a second writer"


def test_a_power_cut_at_every_step_leaves_the_old_version_or_the_new_one(hosts: Hosts, release: Path) -> None:
    """What has reached the disk at each step is copied and looked at by a loader that comes up again."""
    hosts.publish(release)
    old = (release / "weights").read_bytes()
    (release / "weights").write_bytes(b"new")
    cuts: list[tuple[str, Path]] = []

    def cut(step: str) -> None:
        copy = hosts.image.with_name(f"cut-{len(cuts)}.img")
        sh("cp", "--sparse=always", hosts.image, copy)
        cuts.append((step, copy))

    hosts.publish(release, step=cut)
    seen = set()
    for step, copy in cuts:
        device = sh("losetup", "--find", "--show", copy)
        try:
            superblock = disk.read(Path(device))
            assert superblock is not None
            assert superblock.needs_recovery, f"{step}: other nodes must see that this disk is not to be mounted"
            sh("tune2fs", "-f", "-E", "clear_mmp", device)  # the dead writer's sign; the kernel would wait for it
            sh("mount", "-t", "ext4", device, hosts.other_mount)  # replays the journal, as the loader's next run does
            public = hosts.other_mount / "Model-1B"
            manifest.verify(manifest.read(public), public)
            weights = (public / "weights").read_bytes()
            assert weights in (old, b"new"), step
            seen.add(weights)
            sh("umount", hosts.other_mount)
        finally:
            sh("losetup", "--detach", device)
    assert seen == {old, b"new"}


def test_a_full_disk_is_said_and_the_old_version_still_counts(hosts: Hosts, release: Path) -> None:
    hosts.publish(release)
    (release / "weights").write_bytes(os.urandom(70 * 1024**2))
    with pytest.raises(writer.NoSpaceError, match=r"lacks 0\.\d GiB for m"):
        hosts.publish(release)
    version = StorePaths(hosts.loader.paths.root).current("Model-1B")
    assert version is not None
    manifest.verify(
        manifest.read(hosts.loader.paths.version("Model-1B", version)), hosts.loader.paths.public("Model-1B")
    )


def test_a_disk_that_fills_up_while_copying_is_said(
    hosts: Hosts, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts.publish(release)
    (release / "weights").write_bytes(os.urandom(70 * 1024**2))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**40}))
    with pytest.raises(writer.PublishError, match=r"weights: cannot be written \(No space left on device\)"):
        hosts.publish(release)
    assert (hosts.loader.paths.public("Model-1B") / "config.json").is_file()


def test_only_a_blank_disk_that_is_named_is_formatted(hosts: Hosts, release: Path) -> None:
    unnamed = SharedDisk(hosts.loader.paths, hosts.loader.device, None, hosts.loader.lock)
    with (
        pytest.raises(DiskError, match=r"is blank and no model store; nothing was written; .*--format /dev/loop"),
        unnamed.writable(),
    ):
        pass
    wrong = SharedDisk(hosts.loader.paths, hosts.loader.device, hosts.other_mount, hosts.loader.lock)
    with pytest.raises(DiskError, match=r"--format names .*, the model disk is"), wrong.writable():
        pass
    assert disk.signatures(hosts.loader.device) == ""


@pytest.mark.parametrize("kind", ["xfs", "ext4", "dos"])
def test_a_disk_with_somebodys_data_is_refused(hosts: Hosts, kind: str) -> None:
    device = hosts.loader.device
    match kind:
        case "xfs":
            sh("truncate", "--size=400M", hosts.image)
            sh("losetup", "--set-capacity", device)
            sh("mkfs.xfs", "-q", device)
        case "ext4":
            sh("mkfs.ext4", "-q", "-L", "photos", device)
        case _:
            subprocess.run(["sfdisk", "--quiet", str(device)], input=b",,L\n", check=True, capture_output=True)
    before = hosts.image.read_bytes()[: 1024**2]
    with pytest.raises(DiskError, match="nothing was written"), hosts.loader.writable():
        pass
    assert hosts.image.read_bytes()[: 1024**2] == before


def test_a_store_in_use_is_not_pulled_away(hosts: Hosts, release: Path) -> None:
    hosts.publish(release)
    holder = subprocess.Popen(["sleep", "60"], cwd=hosts.loader.paths.root)
    try:
        with pytest.raises(DiskError, match=rf"is in use by sleep \({holder.pid}\); end that and publish again"):
            hosts.publish(release)
    finally:
        holder.kill()
        holder.wait()


@pytest.fixture
def shared_folder(tmp_path: Path) -> Iterator[None]:
    """Mounts below the test's folder reach other mount namespaces, as systemd has it on a node."""
    sh("mount", "--bind", tmp_path, tmp_path)
    sh("mount", "--make-shared", tmp_path)
    yield
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=False)


@contextlib.contextmanager
def sandboxed(command: str) -> Iterator[subprocess.Popen[str]]:
    """A process in a mount namespace that the host's mounts reach: what systemd makes of ProtectSystem=."""
    words = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", f"{command}; echo ready; exec sleep 60"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_sandboxed_service_does_not_hold_the_store_but_a_bind_mount_of_its_own_does(
    shared_folder: None, hosts: Hosts, release: Path
) -> None:
    hosts.publish(release)
    root = hosts.loader.paths.root
    with sandboxed(f"test -e {root}/Model-1B"):
        hosts.publish(release)
    with sandboxed(f"mount --bind {root} {root}") as holder:
        name = rf"still mounted in the mount namespace of sleep \({holder.pid}\); .*restart that service, and publish"
        with pytest.raises(DiskError, match=name):
            hosts.publish(release)
        assert "ro," in sh("findmnt", "--noheadings", "--output", "OPTIONS", root), "readers have it as before"
    hosts.publish(release)


def test_another_mount_of_the_disk_on_this_node_is_named(hosts: Hosts, release: Path) -> None:
    hosts.publish(release)
    sh("mount", "-t", "ext4", "-o", "ro,noload", hosts.loader.device, hosts.other_mount)
    with pytest.raises(DiskError, match=rf"still mounted at {hosts.other_mount}; unmount it there"):
        hosts.publish(release)


def test_what_mount_says_is_told_not_where_it_might_say_more() -> None:
    program = (
        "echo 'mount: busy.'; echo '       dmesg(1) may have more information after failed mount system call.'; exit 32"
    )
    with pytest.raises(DiskError, match=r"failed: mount: busy\.$"):
        disk.run("sh", "-c", program)


def test_one_publication_at_a_time(hosts: Hosts, release: Path) -> None:
    with (
        hosts.loader.writable(),
        pytest.raises(HuddleError, match="another publication is running"),
        hosts.loader.writable(),
    ):
        pass


def test_a_store_that_was_formatted_without_protection_gets_it_before_it_is_written_to(
    hosts: Hosts, release: Path
) -> None:
    sh("mkfs.ext4", "-q", "-L", disk.LABEL, hosts.loader.device)
    before = disk.read(hosts.loader.device)
    assert before is not None
    assert before.mmp_block is None
    hosts.publish(release)
    after = disk.read(hosts.loader.device)
    assert after is not None
    assert after.mmp_block is not None
