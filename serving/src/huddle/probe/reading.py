"""What an engine shows at one moment: its counters, and whether a completion of one token comes back."""

import http.client
import json
import threading
import time
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from typing import Any

METRICS_TIMEOUT_S = 3.0
"""Above the 405 ms of the slowest healthy answer (docs/facts/gpus.md#healthy-engines-under-load)."""
WORK = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count")
"""Counters that stood still in every stall and moved in every healthy run (docs/facts/gpus.md#stalled-engines)."""
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"


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


def parse(text: str) -> dict[str, float]:
    """Sums of the metrics that count here, over all labels."""
    wanted = {*WORK, RUNNING, WAITING}
    found = dict.fromkeys(wanted, 0.0)
    for line in text.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in wanted:
            try:
                found[name] += float(line.rpartition(" ")[2])
            except ValueError:
                continue
    return found


class Engine:
    """Asks one engine on this machine. A canary runs beside the readings, so that it can be seen not to come back."""

    def __init__(self, host: str, port: int, canary_timeout_s: float) -> None:
        self._address, self._canary_timeout_s = (host, port), canary_timeout_s
        self._canary = Canary.NONE
        self._lock = threading.Lock()

    def read(self) -> Reading:
        """Read the counters now, and hear of the canary once."""
        try:
            status, text = self._request("GET", "/metrics", None, METRICS_TIMEOUT_S)
        except ConnectionRefusedError:
            return Reading(time.monotonic(), Answer.REFUSED, canary=self._take_canary())
        except (OSError, http.client.HTTPException):
            return Reading(time.monotonic(), Answer.LATE, canary=self._take_canary())
        if status != 200:
            return Reading(time.monotonic(), Answer.LATE, canary=self._take_canary())
        found = parse(text)
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
            _, listed = self._request("GET", "/v1/models", None, METRICS_TIMEOUT_S)
            body = {"model": json.loads(listed)["data"][0]["id"], "prompt": "Hi", "max_tokens": 1}
            status, _ = self._request("POST", "/v1/completions", body, self._canary_timeout_s)
            outcome = Canary.COMPLETED if status == 200 else Canary.FAILED
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
            pass
        with self._lock:
            self._canary = outcome

    def _take_canary(self) -> Canary:
        with self._lock:
            seen = self._canary
            if seen in (Canary.COMPLETED, Canary.FAILED):
                self._canary = Canary.NONE
            return seen

    def _request(self, method: str, path: str, body: Any, timeout_s: float) -> tuple[int, str]:
        connection = http.client.HTTPConnection(*self._address, timeout=timeout_s)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()
