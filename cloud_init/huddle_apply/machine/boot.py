"""Waiting until the machine itself is ready: cloud-init, clock, packages. Each wait has a deadline."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import files
from ..failure import ApplyError
from ..ledger import Ledger
from ..paths import NodePaths
from . import commands

POLL_S = 2.0
HOLD_S = 120
"""Waiting for dpkg's lock to hold packages, which nobody needs at once: the next bundle tries again."""
_HOLDING_S = 60
_LOG = "/var/log/cloud-init-output.log"


def wait_for_cloud_init(paths: NodePaths, ledger: Ledger, deadline_s: float) -> None:
    """Wait for day 0 to end: `done` is good, `degraded` a warning, `error` a failure.

    Raises:
        ApplyError: day 0 failed or does not end.
    """
    end = time.monotonic() + deadline_s
    while True:
        status, detail = _cloud_init(paths)
        if status in ("done", "disabled", "absent"):
            return
        if status == "degraded":
            ledger.warn(f"cloud-init is degraded: {detail}; see `cloud-init status --long`")
            return
        if status == "error":
            raise ApplyError(f"cloud-init failed on this machine: {detail}; see {_LOG}")
        if time.monotonic() > end:
            raise ApplyError(f"cloud-init is still {status} after {deadline_s:.0f} s; see {_LOG}")
        time.sleep(min(POLL_S, deadline_s / 10))


def _cloud_init(paths: NodePaths) -> tuple[str, str]:
    """State and detail. `cloud-init status` ends with 1 or 2 for errors, and still says which on stdout."""
    if _ended_well(paths.cloud_init):
        return "done", ""
    if shutil.which("cloud-init") is None:
        return "absent", ""
    try:
        status = json.loads(commands.output(["cloud-init", "status", "--format", "json"], deadline_s=60) or "")
    except ValueError:
        return "running", "it gives no answer"
    recoverable = [text for texts in status.get("recoverable_errors", {}).values() for text in texts]
    detail = "; ".join(map(str, [*status.get("errors", ()), *recoverable])) or status.get("detail", "")
    # Newer releases have an extended status, such as "degraded done".
    state = status.get("extended_status") or status.get("status", "running")
    for word in ("error", "degraded", "done", "disabled"):
        if word in state:
            return ("degraded" if word == "done" and recoverable else word), detail
    return state, detail


def _ended_well(records: Path) -> bool:
    """Whether cloud-init's own records of this boot say so: asking the program takes seconds, at each apply.

    `result.json` is written at the end of its last stage; each stage of `status.json` lists what went wrong in it.
    """
    result, status = (files.read_json(records / f"{name}.json").get("v1", {}) for name in ("result", "status"))
    stages = [stage for stage in status.values() if isinstance(stage, dict)]
    troubles = [stage.get(kind) for stage in (result, *stages) for kind in ("errors", "recoverable_errors")]
    return "errors" in result and bool(stages) and not any(troubles)


def wait_for_clock(ledger: Ledger, deadline_s: float) -> None:
    """Wait for the clock: with a wrong one no certificate is valid. No answer in time is a warning only."""
    end = time.monotonic() + deadline_s
    command = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
    while time.monotonic() < end:
        try:
            if commands.run(command, deadline_s=10).strip() == "yes":
                return
        except ApplyError as failure:
            ledger.warn(f"the clock's state is not known: {failure}")
            return
        time.sleep(min(POLL_S, deadline_s / 10))
    ledger.warn(f"the clock is not synchronised after {deadline_s:.0f} s; certificates may be refused")


def install_packages(packages: Sequence[str], left_s: Callable[[], float]) -> None:
    """Install the Debian packages that are missing; apt itself waits for its lock.

    Raises:
        ApplyError: apt fails or its lock stays held.
    """
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *packages]
    installed = (commands.output(query, deadline_s=60) or "").splitlines()
    missing = [name for name in packages if f"{name} installed" not in installed]
    if not missing:
        return
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    wait = f"-oDPkg::Lock::Timeout={left_s() / 2:.0f}"
    commands.run(["apt-get", wait, "-qq", "update"], deadline_s=left_s(), env=environment)
    commands.run(
        ["apt-get", wait, "-qq", "install", "--yes", "--no-install-recommends", *missing],
        deadline_s=left_s(),
        env=environment,
    )


def hold_packages(program: Path, ledger: Ledger, left_s: Callable[[], float]) -> None:
    """Keep driver and kernel from being upgraded. Not held, because another program has dpkg's lock, is a warning."""
    wait_s = min(HOLD_S, max(left_s() - _HOLDING_S, 0))
    try:
        commands.run([str(program)], deadline_s=wait_s + _HOLDING_S, env={"HUDDLE_HOLD_S": f"{wait_s:.0f}"})
    except ApplyError as failure:
        ledger.warn(f"the GPU driver and the kernel can be upgraded by accident: {failure}")
