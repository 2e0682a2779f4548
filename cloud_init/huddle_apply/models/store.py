"""The model store on a shared disk, mounted again before it is read.

Another node writes to that disk (`huddle models publish`), and what this machine has cached of it grows stale: it is
unmounted, forgotten and mounted again. While a writer is at work, or was cut off, the disk itself says so in its
superblock (needs recovery), and it is not mounted again. Staging then checks every byte against the manifest.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..failure import ApplyError
from ..ledger import say
from ..machine import commands
from ..paths import NodePaths

_INCOMPAT_AT, _MAGIC_AT, _MAGIC, _RECOVER = 1024 + 0x60, 1024 + 0x38, 0xEF53, 0x4
_QUICK_S = 60.0
_POLL_S = 5.0


def reopen(paths: NodePaths, facts: Mapping[str, Any], deadline_s: float) -> None:
    """Wait for a publication to end, then mount the store as it is now. Only root can.

    Raises:
        ApplyError: the disk stays marked as being written, or is in use here and cannot be unmounted.
    """
    device = facts.get("device")
    if device is None or not (paths.root / str(device).lstrip("/")).exists():
        return
    end = time.monotonic() + deadline_s
    said = False
    while being_written(_superblock(device)):
        if time.monotonic() > end:
            raise ApplyError(
                f"the model store has been marked as being written for {deadline_s:.0f} s; if no publication runs on "
                f"{facts['writer']}, one was cut off there: publish again, it goes on where it was"
            )
        if not said:
            say(f"waiting for a publication on {facts['writer']} to end")
            said = True
        time.sleep(_POLL_S)
    unit = str(facts["unit"])
    commands.run(["systemctl", "stop", unit], deadline_s=_QUICK_S)
    commands.run(["blockdev", "--flushbufs", str(device)], deadline_s=_QUICK_S)
    commands.run(["systemctl", "start", unit], deadline_s=_QUICK_S)


def being_written(superblock: bytes) -> bool:
    """Whether ext4 says that a writer has it, or was cut off. (What is not ext4 is the mount's business.)"""
    if len(superblock) < _INCOMPAT_AT + 4 or struct.unpack_from("<H", superblock, _MAGIC_AT)[0] != _MAGIC:
        return False
    return bool(struct.unpack_from("<I", superblock, _INCOMPAT_AT)[0] & _RECOVER)


def _superblock(device: str) -> bytes:
    commands.run(["blockdev", "--flushbufs", device], deadline_s=_QUICK_S)
    try:
        with Path(device).open("rb") as disk:
            return disk.read(2048)
    except OSError as error:
        raise ApplyError(f"{device} cannot be read ({error.strerror or error}); see dmesg") from error
