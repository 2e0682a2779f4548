"""The loop: read, judge, say, act."""

import json
import sys
import threading
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

from huddle.probe import ladder, verdict
from huddle.probe.judge import Action, Policy, State, judge
from huddle.probe.reading import EngineReader, Reading

_REMEMBERED = 60


@dataclass
class ProbeLoop:
    """One engine, and what its probe remembers."""

    engine: EngineReader
    policy: Policy
    verdict_file: Path
    evidence: Path
    unit: str
    state: State = field(default_factory=State)
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def run(self, stop: threading.Event) -> None:
        """Read and act every `policy.interval_s` seconds until `stop` is set."""
        while not stop.is_set():
            self.once()
            stop.wait(self.policy.interval_s)

    def once(self) -> None:
        """One reading and all that follows from it."""
        reading = self.engine.read()
        self.readings.append(reading)
        before = self.state.health
        self.state, due = judge(self.state, reading, self.policy)
        if self.state.health is not before:
            _log("verdict", verdict=self.state.health, reason=self.state.reason)
        # Readiness goes first: no request should come while the engine is being ended.
        verdict.write(
            self.verdict_file,
            verdict=self.state.health,
            ready=self.state.ready,
            reason=self.state.reason,
            restarts=len(self.state.restarts),
        )
        for action in due:
            self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Action.CANARY:
                self.engine.send_canary()
            case Action.EVIDENCE:
                self._keep_evidence()
            case Action.RESTART:
                _log("restart", reason=self.state.reason, processes=ladder.restart(self.unit))
            case Action.GIVE_UP:
                _log("give_up", reason=self.state.reason)

    def _keep_evidence(self) -> None:
        try:
            kept = ladder.keep_evidence(self.evidence, self.state.reason, self.readings, self.unit)
            _log("evidence", file=str(kept))
        except OSError as error:  # a full disk must not keep an unhealthy engine alive
            _log("evidence_lost", error=str(error), last=asdict(self.readings[-1]))


def _log(event: str, **facts: object) -> None:
    sys.stderr.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stderr.flush()
