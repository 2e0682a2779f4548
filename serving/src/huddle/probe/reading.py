"""What an engine shows at one moment: its counters, and whether a completion of one token comes back."""

import json
import threading
import time
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from huddle.engine import query
from huddle.engine.query import RUNNING, WAITING

METRICS_TIMEOUT_S = 3.0
"""Above the 405 ms of the slowest healthy answer (docs/facts/gpus.md#healthy-engines-under-load)."""
WORK = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count")
"""Counters that stood still in every stall and moved in every healthy run (docs/facts/gpus.md#stalled-engines)."""


@verify(UNIQUE)
class Answer(StrEnum):
    """How the engine's HTTP server took a question."""

    GIVEN = "given"
    REFUSED = "refused"  # nobody listens: it is starting, or gone
    LATE = "late"


@verify(UNIQUE)
class Canary(StrEnum):
    """The one-token completion that is asked of an idle engine."""

    NONE = "none"
    ASKED = "asked"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class Reading:
    """One moment. `work` only ever grows in one life of an engine; `running` are requests, waiting ones included."""

    at_s: float
    answer: Answer
    work: float = 0.0
    running: float = 0.0
    canary: Canary = Canary.NONE


class EngineReader:
    """Asks one engine on this machine. A canary runs beside the readings, so that it can be seen not to come back."""

    def __init__(self, host: str, port: int, canary_timeout_s: float) -> None:
        self._address, self._canary_timeout_s = (host, port), canary_timeout_s
        self._canary = Canary.NONE
        self._lock = threading.Lock()

    def read(self) -> Reading:
        """Read the counters now; the canary's outcome is reported once."""
        try:
            status, text = query.request(self._address, "/metrics", timeout_s=METRICS_TIMEOUT_S)
        except ConnectionRefusedError:
            return Reading(time.monotonic(), Answer.REFUSED, canary=self._take_canary())
        except query.UNREACHABLE:
            return Reading(time.monotonic(), Answer.LATE, canary=self._take_canary())
        if status != 200:
            return Reading(time.monotonic(), Answer.LATE, canary=self._take_canary())
        found = query.sums(text, (*WORK, RUNNING, WAITING))
        return Reading(
            time.monotonic(),
            Answer.GIVEN,
            work=sum(found[name] for name in WORK),
            running=found[RUNNING] + found[WAITING],
            canary=self._take_canary(),
        )

    def send_canary(self) -> None:
        """Ask for one token, unless one is being waited for."""
        with self._lock:
            if self._canary is Canary.ASKED:
                return
            self._canary = Canary.ASKED
        threading.Thread(target=self._ask, daemon=True).start()

    def _ask(self) -> None:
        outcome = Canary.FAILED
        try:
            _, listed = query.request(self._address, "/v1/models", timeout_s=METRICS_TIMEOUT_S)
            body = {"model": json.loads(listed)["data"][0]["id"], "prompt": "Hi", "max_tokens": 1}
            status, _ = query.request(self._address, "/v1/completions", body, timeout_s=self._canary_timeout_s)
            outcome = Canary.COMPLETED if status == 200 else Canary.FAILED
        except (*query.UNREACHABLE, ValueError, LookupError, TypeError):
            pass
        with self._lock:
            self._canary = outcome

    def _take_canary(self) -> Canary:
        with self._lock:
            seen = self._canary
            if seen in (Canary.COMPLETED, Canary.FAILED):
                self._canary = Canary.NONE
            return seen
