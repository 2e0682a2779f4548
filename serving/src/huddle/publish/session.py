"""A store made writable for as long as a publication takes, by the one node that may."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from huddle.errors import InputError
from huddle.publish import disk
from huddle.publish.disk import DiskError
from huddle.publish.paths import StorePaths

LOCK = Path("/run/huddle-publish.lock")  # not below /run/lock, where any user could hold it
WRITER_SILENT_AFTER = timedelta(minutes=2)
"""A writer signs every five seconds; one that has been silent this long is gone (clocks may differ a little)."""


class NotTheLoaderError(InputError):
    """This node must not write to the store."""


class Store(Protocol):
    """Something that can be made writable."""

    @property
    def paths(self) -> StorePaths:
        """Where its models lie."""

    def writable(self) -> contextlib.AbstractContextManager[None]:
        """Writable inside, read-only again afterwards.

        Raises:
            HuddleError: the store is not there, another publication runs, or the disk cannot be mounted for writing.
        """


@dataclass(frozen=True)
class DirectoryStore:
    """A directory that is writable as it is: a test's, or a share that somebody has mounted for writing."""

    paths: StorePaths

    @contextlib.contextmanager
    def writable(self) -> Iterator[None]:
        """One publication at a time."""
        if not self.paths.root.is_dir():
            raise InputError(f"{self.paths.root}: is no directory; make the store's directory first")
        descriptor = os.open(self.paths.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _take(descriptor)
            yield
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class SharedDisk:
    """A disk that several nodes have attached. `format_device` names the disk that may be formatted if it is blank."""

    paths: StorePaths
    device: Path
    format_device: Path | None = None
    lock: Path = LOCK

    @contextlib.contextmanager
    def writable(self) -> Iterator[None]:
        """Unmount, check, mount for writing; at the end unmount, so that all is on the disk, and mount read-only."""
        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("w") as lock:
            _take(lock.fileno())
            self._unmount()
            try:
                self._prepare()
                self._mount("rw")
                yield
            finally:
                self._unmount()
                disk.flush(self.device)
                self.mount_read_only()

    def mount_read_only(self) -> None:
        """As every node mounts it. A disk that is still blank cannot be, which is no fault."""
        found = disk.read(self.device)
        if found is not None and not found.needs_recovery:
            self._mount("ro,noload")

    def _prepare(self) -> None:
        superblock = disk.read(self.device)
        if superblock is None:
            self._format()
            superblock = disk.read(self.device)
        if superblock is None or superblock.label != disk.LABEL:
            label = "" if superblock is None else superblock.label
            raise DiskError(
                f"{self.device} is an ext4 disk labelled {label!r}, a model store's is {disk.LABEL!r}; nothing was "
                f"written. If it is the store: e2label {self.device} {disk.LABEL}"
            )
        other = disk.writer(self.device, superblock)
        if other is not None and other.node != socket.gethostname():
            age = datetime.now(UTC) - other.seen
            if age < WRITER_SILENT_AFTER:
                raise DiskError(f"{other.node} has {self.device} mounted for writing; wait until it has finished")
        if superblock.mmp_block is None:
            disk.protect(self.device)

    def _format(self) -> None:
        if self.format_device is None:
            found = disk.signatures(self.device)
            state = f"carries {found}" if found else "is blank"
            hint = "" if found else f"; to make it the model store: --format {self.device}"
            raise DiskError(f"{self.device} {state} and no model store; nothing was written{hint}")
        if self.format_device.resolve() != self.device.resolve():
            raise DiskError(
                f"--format names {self.format_device}, the model disk is {self.device}; nothing was written"
            )
        disk.format_blank(self.device)

    def _mount(self, options: str) -> None:
        self.paths.root.mkdir(parents=True, exist_ok=True)
        words = ["--types", "ext4", "--options", f"{options},nodev,nosuid", str(self.device), str(self.paths.root)]
        if options == "rw":
            # Without it mount(8) mounts a disk that is in use read-only instead, and calls that success.
            words.insert(0, "--rw")
        try:
            disk.run("mount", *words)
        except DiskError as error:
            holders = ", ".join(_holders(self.device))
            if not holders:
                raise
            raise DiskError(
                f"{self.device} cannot be mounted for publishing ({options}), as it is still mounted {holders}; "
                "unmount it there, or restart that service, and publish again"
            ) from error

    def _unmount(self) -> None:
        while os.path.ismount(self.paths.root):
            try:
                disk.run("umount", str(self.paths.root))
            except DiskError:
                users = ", ".join(_users(self.paths.root)) or "a mount namespace, such as a sandboxed service's"
                raise DiskError(
                    f"{self.paths.root} is in use by {users}; end that and publish again, nothing was written"
                ) from None


def _take(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError("another publication is running on this node; wait until it has finished") from None


def _holders(device: Path) -> Iterator[str]:
    """Where a device is still mounted: at other places here, and by which processes, one for each mount namespace."""
    number = device.stat().st_rdev
    mounted, ours = f"{os.major(number)}:{os.minor(number)}", Path("/proc/self/ns/mnt").readlink()
    seen: set[Path] = set()
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # it has ended
            namespace = (process / "ns/mnt").readlink()
            if namespace in seen:
                continue
            seen.add(namespace)
            # Fields of a line: number, parent, major:minor, root, mount point, …
            lines = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
            points = [fields[4] for fields in lines if fields[2] == mounted]
            if points and namespace == ours:
                yield f"at {', '.join(points)}"
            elif points:
                yield f"in the mount namespace of {(process / 'comm').read_text().strip()} ({process.name})"


def _users(root: Path) -> Iterator[str]:
    """Processes with an open file, a directory or a program below a path."""
    for process in sorted(Path("/proc").glob("[0-9]*")):
        links = [process / "cwd", process / "exe", process / "root"]
        with contextlib.suppress(OSError):
            links += list((process / "fd").iterdir())
        for link in links:
            with contextlib.suppress(OSError):
                target = link.readlink()
                if target == root or root in target.parents:
                    yield f"{(process / 'comm').read_text().strip()} ({process.name})"
                    break
