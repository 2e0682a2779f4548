"""The probe's verdict as a file, for the wrapper's readiness, for `huddle status` and for whoever logs in."""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle import whole_file

PATH = Path("/run/huddle-probe/verdict.json")
STALE_AFTER_S = 30.0
"""The probe writes every few seconds; what is older than this says nothing any more."""
_FORMER = {"well": "healthy", "sick": "unhealthy"}
"""Words of earlier versions: a probe of one may still run beside what reads its file."""


@dataclass(frozen=True)
class Published:
    """What the probe says. `age_s`: how long ago it said so."""

    verdict: str
    ready: bool
    reason: str
    restarts: int
    age_s: float

    @property
    def stale(self) -> bool:
        """Whether the probe has fallen silent."""
        return not 0 <= self.age_s <= STALE_AFTER_S


def write(path: Path, *, verdict: str, ready: bool, reason: str, restarts: int) -> None:
    """Say it; a reader never sees half of it."""
    said = {"verdict": verdict, "ready": ready, "reason": reason, "restarts": restarts, "at": time.time()}
    whole_file.write(path, json.dumps(said).encode() + b"\n", mode=0o644)


def read(path: Path, now: float | None = None) -> Published | None:
    """What was said last; None where no probe runs."""
    try:
        said: dict[str, Any] = json.loads(path.read_bytes())
        age_s = (time.time() if now is None else now) - float(said["at"])
        verdict = str(said["verdict"])
        return Published(
            _FORMER.get(verdict, verdict),
            bool(said["ready"]),
            str(said["reason"]),
            int(said["restarts"]),
            round(age_s, 1),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def objection(path: Path, now: float | None = None) -> str | None:
    """Why this node should get no requests, as far as the probe knows. A silent probe objects to nothing."""
    said = read(path, now)
    return said.reason if said is not None and not said.ready and not said.stale else None
