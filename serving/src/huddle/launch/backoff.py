"""Never a tight restart loop: an engine that keeps dying young is started again ever later."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huddle import whole_file

YOUNG_S = 300  # a run this long was a good one and clears the record
FIRST_WAIT_S = 5
LONGEST_WAIT_S = 300
_KEPT = 20


def wait_s(lifetimes: Sequence[float]) -> float:
    """Seconds to wait before the next start, from how long the last runs lived (newest last): 0, 5, 10, 20 ... 300."""
    young = 0
    for lifetime in reversed(lifetimes):
        if lifetime >= YOUNG_S:
            break
        young += 1
    return min(LONGEST_WAIT_S, FIRST_WAIT_S * math.ldexp(1, min(young, 16) - 1)) if young else 0.0


@dataclass(frozen=True)
class Record:
    """How long the last failed runs lived, in a small file."""

    path: Path

    def read(self) -> list[float]:
        """The lifetimes in seconds; an unreadable file counts as none."""
        try:
            values = json.loads(self.path.read_text(encoding="utf-8"))
            return [float(value) for value in values]
        except (OSError, ValueError, TypeError):
            return []

    def died(self, lifetime_s: float) -> None:
        """Note a run that ended without being asked to."""
        values = [*self.read(), round(lifetime_s, 1)][-_KEPT:]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(self.path, json.dumps(values).encode())

    def clear(self) -> None:
        """Forget: the engine was stopped in order."""
        self.path.unlink(missing_ok=True)
