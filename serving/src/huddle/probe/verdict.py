"""The probe's verdict as a file, for the wrapper's readiness, for `huddle status` and for whoever logs in.

Its age is told by the monotonic clock, which all processes of one boot share: a step of the wall clock ages nothing.
The boot's id goes with it, since that clock starts again at each boot.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from huddle import whole_file

FOLDER = Path("/run/huddle-probe")
SILENT_AFTER_S = 30.0
"""The probe writes every few seconds; what is older than this says nothing any more."""
SILENT = f"the probe has said nothing for more than {SILENT_AFTER_S:.0f} s; see journalctl -t huddle-probe"
_BYTES_MAX = 65_536


def path_of(copy: int) -> Path:
    """The file about one engine of this node; they are counted from 0."""
    return FOLDER / str(copy) / "verdict.json"


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
        return self.age_s > SILENT_AFTER_S


def write(path: Path, *, verdict: str, ready: bool, reason: str, restarts: int) -> None:
    """Say it; a reader never sees half of it. `at` is for people, and for readers of earlier versions."""
    said = {"verdict": verdict, "ready": ready, "reason": reason, "restarts": restarts, "at": time.time()}
    clock = {"boot_id": boot_id(), "monotonic_s": time.monotonic()}
    whole_file.write(path, json.dumps(said | clock).encode() + b"\n", mode=0o644)


def read(path: Path) -> Published | None:
    """What was said last; None where no probe has spoken in this boot, or what is there is no verdict."""
    try:
        return _published(json.loads(whole_file.read(path, _BYTES_MAX)))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _published(said: Any) -> Published:
    """Raises as `read` catches."""
    at_s, restarts = float(said["monotonic_s"]), int(said["restarts"])
    age_s = time.monotonic() - at_s
    if said["boot_id"] != boot_id() or not math.isfinite(age_s) or age_s < 0:
        raise ValueError("of another boot")
    return Published(str(said["verdict"]), said["ready"] is True, str(said["reason"]), restarts, round(age_s, 1))


class Listener:
    """Follows the verdicts of one file, as the wrapper's readiness does."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._heard_at_s = clock()
        self._objection: str | None = None

    def objection(self) -> str | None:
        """Why this node should get no requests, as far as the probe knows.

        The last verdict holds until the probe has been silent for `SILENT_AFTER_S`, counted from the start where it has
        not spoken yet; from then on the silence is the reason.
        """
        said, now_s = read(self._path), self._clock()
        if said is not None and not said.stale:
            self._heard_at_s = now_s - said.age_s
            self._objection = None if said.ready else said.reason
        return SILENT if now_s - self._heard_at_s > SILENT_AFTER_S else self._objection


@cache
def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
