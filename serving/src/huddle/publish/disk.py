"""The shared disk as every node can see it: an ext4 superblock, and in it who writes right now.

Two facts that the kernel keeps on the disk itself are all that nodes need to agree, so nothing runs for it:

- *needs recovery* (`INCOMPAT_RECOVER`): set while a node has the disk mounted for writing, and after a crash until that
  node has replayed its journal. A node that mounts `ro,noload` must not do so while it is set.
- *multi-mount protection* (`INCOMPAT_MMP`): the kernel refuses a second mount for writing, on whatever node.

Offsets: the kernel's Documentation/filesystems/ext4/super.rst and mmp.rst.
"""

import struct
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from huddle.errors import HuddleError

LABEL = "huddle-models"
_SUPERBLOCK_AT, _SUPERBLOCK_SIZE = 1024, 1024
_MAGIC_AT, _INCOMPAT_AT, _LABEL_AT, _BLOCK_SIZE_AT, _MMP_BLOCK_AT = 0x38, 0x60, 0x78, 0x18, 0x168
_MAGIC = 0xEF53
_RECOVER, _MMP = 0x4, 0x100
_MMP_MAGIC, _MMP_CLEAN, _MMP_FSCK = 0x004D4D50, 0xFF4D4D50, 0xE24D4D50
_LONG_S = 600.0
_POINTER = "dmesg(1) may have more information"
"""What mount(8) ends with, after the line that says what happened."""


class DiskError(HuddleError):
    """The disk is not what it must be, or a program that works on it failed; nothing on it was changed."""


@dataclass(frozen=True)
class Writer:
    """Who said last that it writes: host name and time of its last sign (every few seconds while it lives)."""

    node: str
    seen: datetime


@dataclass(frozen=True)
class Superblock:
    """What an ext4 file system says of itself. `mmp_block`: where its writer signs; None without that protection."""

    label: str
    needs_recovery: bool
    mmp_block: int | None
    block_size: int


def parse(data: bytes) -> Superblock | None:
    """The superblock in the 1024 bytes at offset 1024 of a device; None when there is no ext4."""
    if len(data) < _SUPERBLOCK_SIZE or _u16(data, _MAGIC_AT) != _MAGIC:
        return None
    incompatible = _u32(data, _INCOMPAT_AT)
    return Superblock(
        label=data[_LABEL_AT : _LABEL_AT + 16].partition(b"\0")[0].decode(errors="replace"),
        needs_recovery=bool(incompatible & _RECOVER),
        mmp_block=_u64(data, _MMP_BLOCK_AT) if incompatible & _MMP else None,
        block_size=1024 << _u32(data, _BLOCK_SIZE_AT),
    )


def parse_writer(data: bytes) -> Writer | None:
    """Who holds the disk for writing, from the protection's block; None when it was given back in order."""
    if len(data) < 80 or _u32(data, 0) != _MMP_MAGIC or _u32(data, 4) in (_MMP_CLEAN, _MMP_FSCK):
        return None
    node = data[16:80].partition(b"\0")[0].decode(errors="replace")
    return Writer(node, datetime.fromtimestamp(_u64(data, 8), UTC))


def read(device: Path) -> Superblock | None:
    """The superblock of a device, from the device: what this machine has cached of it is dropped first."""
    flush(device)
    return parse(_read_at(device, _SUPERBLOCK_AT, _SUPERBLOCK_SIZE))


def writer(device: Path, superblock: Superblock) -> Writer | None:
    """Who holds a device for writing."""
    if superblock.mmp_block is None:
        return None
    return parse_writer(_read_at(device, superblock.mmp_block * superblock.block_size, 128))


def flush(device: Path) -> None:
    """Drop what this machine has cached of a device, so that the next read asks the disk."""
    run("blockdev", "--flushbufs", str(device))


def signatures(device: Path) -> str:
    """What is on a device, as wipefs names it; empty for a blank one."""
    listed = run("wipefs", "--no-act", "--noheadings", "--output", "TYPE", str(device)).split()
    parts = run("lsblk", "--noheadings", "--raw", "--output", "NAME", str(device)).split()
    return " ".join([*listed, *(["partitions"] if len(parts) > 1 else [])])


def format_blank(device: Path) -> None:
    """Make the file system of a model store on a blank disk.

    Raises:
        DiskError: something is on it, or mkfs fails.
    """
    found = signatures(device)
    if found:
        raise DiskError(
            f"{device} carries {found}: somebody's data; nothing was written. A disk is formatted only when it is blank"
        )
    # Big files only: an inode for each MiB; no blocks kept for root.
    options = ["-q", "-O", "mmp,^orphan_file", "-i", str(1024**2), "-m", "0", "-L", LABEL]
    run("mkfs.ext4", *options, str(device))
    flush(device)


def protect(device: Path) -> None:
    """Switch multi-mount protection on, on a disk that was formatted without; it must not be mounted here."""
    run("tune2fs", "-O", "mmp", str(device))


def run(*argv: str) -> str:
    """Run one of the system's programs.

    Raises:
        DiskError: with the last line that says what happened.
    """
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LONG_S, check=False
        )
    except OSError as error:
        raise DiskError(f"`{argv[0]}` cannot be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise DiskError(f"`{' '.join(argv)}` did not end within {_LONG_S:.0f} s") from error
    if done.returncode:
        said = (line for line in reversed(done.stdout.splitlines()) if line.strip() and _POINTER not in line)
        last = next(said, "it said nothing")
        raise DiskError(f"`{' '.join(argv)}` failed: {last.strip()}")
    return done.stdout


def _read_at(device: Path, offset: int, size: int) -> bytes:
    try:
        with device.open("rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise DiskError(f"{device} cannot be read ({error.strerror or error}); is the model disk attached?") from error


def _u16(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<H", data, at)[0])


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def _u64(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<Q", data, at)[0])
