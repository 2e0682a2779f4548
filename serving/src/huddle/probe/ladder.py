"""What is done about an unhealthy engine, rung by rung: keep evidence, hold requests back (by the verdict), end it.

The probe runs as the engine's own user, so it needs no right but that user's: it kills the unit's processes, and
systemd brings them back (`Restart=always`). There is nothing to drain: no token would come.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huddle.probe.reading import Reading

CGROUPS = Path("/sys/fs/cgroup/system.slice")
KEPT = 10
_TOOL_S = 20.0


def unit_of(copy: int) -> str:
    """The unit of one engine of this node; they are counted from 0."""
    return f"huddle-vllm@{copy}.service"


def processes(unit: str, cgroups: Path = CGROUPS) -> list[int]:
    """The processes of a unit, as the kernel's control group lists them; none when it does not run."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for listing in sorted((cgroups / unit).rglob("cgroup.procs")):
            found += [int(line) for line in listing.read_text(encoding="ascii").split()]
    return found


def restart(unit: str, cgroups: Path = CGROUPS) -> int:
    """End every process of the unit at once; returns how many there were."""
    found = processes(unit, cgroups)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def keep_evidence(folder: Path, reason: str, readings: Iterable[Reading], unit: str) -> Path:
    """Write down what was seen before it is swept away; the oldest of many goes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.json"
    evidence = {
        "reason": reason,
        "readings": [asdict(reading) for reading in readings],
        "processes": list(_facts(processes(unit))),
        "gpus": _said(["nvidia-smi", "--query-gpu=index,utilization.gpu,memory.used,temperature.gpu", "--format=csv"]),
    }
    path.write_text(json.dumps(evidence, indent=1) + "\n", encoding="utf-8")
    for old in sorted(folder.glob("*.json"))[:-KEPT]:
        old.unlink()
    return path


def _facts(pids: Sequence[int]) -> Iterator[dict[str, Any]]:
    """What each process waits for. A stopped one has state T, one stuck in a driver D."""
    for pid in pids:
        facts: dict[str, Any] = {"pid": pid}
        for name in ("comm", "wchan", "stat"):
            with contextlib.suppress(OSError):
                facts[name] = Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace").strip()
        if stat := facts.pop("stat", ""):
            facts["state"] = stat.rpartition(")")[2].split()[0]
        yield facts


def _said(argv: Sequence[str]) -> str | None:
    if shutil.which(argv[0]) is None:
        return None
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=_TOOL_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
