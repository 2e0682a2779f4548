"""The local disks: units of day 0 prepare and mount them at boot; here they are waited for, or started once more."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..failure import ApplyError
from ..paths import NodePaths
from . import systemd

NVME = "huddle-nvme.service"
_POLL_S = 1.0


def wait_for_workspace(paths: NodePaths, units: Sequence[str], deadline_s: float) -> None:
    """Wait for the directories on the local disks.

    Raises:
        ApplyError: they do not come; with what the disks' program said.
    """
    if paths.workspace.is_dir():
        return
    # Not waited for: a mount whose disk does not come would hold us longer than our own deadline.
    systemd.start([NVME, *units])
    end = time.monotonic() + deadline_s
    while not paths.workspace.is_dir():
        if time.monotonic() > end:
            log = systemd.log_of(NVME)
            said = [line.partition(": ")[2] for line in log.splitlines() if line.startswith("huddle-nvme: ")]
            reason = said[-1] if said else f"`systemctl status {NVME}` says why"
            raise ApplyError(f"{paths.workspace} is not there after {deadline_s:.0f} s: {reason}", log)
        time.sleep(min(_POLL_S, deadline_s / 10))
