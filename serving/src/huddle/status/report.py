"""The node's status, gathered from the files that its programs leave, for scripts and for people."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle.errors import InputError
from huddle.probe import verdict
from huddle.probe.judge import HealthStatus

APPLIED = Path("/var/lib/huddle/status.json")
CURRENT = Path("/opt/huddle/current")


class NoStatusError(InputError):
    """Nothing has been applied on this machine."""


@dataclass(frozen=True)
class Sources:
    """Where the files are; other places serve tests."""

    applied: Path = APPLIED
    current: Path = CURRENT
    verdicts: Callable[[int], Path] = verdict.path_of


def gather(sources: Sources) -> dict[str, Any]:
    """Everything in one object. Fields of `huddle-apply` keep their names; the others are added.

    Raises:
        NoStatusError: this is no node, or nothing was applied yet.
    """
    applied = _read(sources.applied)
    if applied is None:
        raise NoStatusError(f"{sources.applied} is not there: no bundle has been applied on this machine yet")
    node = _read(sources.current / "nodes" / str(applied.get("node")) / "node.json") or {}
    expects = node.get("expects", {})
    answers = expects.get("answers")
    # Only an empty list says that there is none; where the facts cannot be read, the probe has to show one.
    engines = 0 if answers == [] else len(expects.get("engines", ["of a bundle before"]))
    return {
        **applied,
        "engines": engines,
        "models": [{"model": one.get("model"), "prompt_sha256": one.get("prompt_sha256")} for one in answers or ()],
        "versions": node.get("versions", {}),
        "probes": [_said(verdict.read(sources.verdicts(copy))) for copy in range(engines)],
    }


def _said(said: verdict.Published | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "verdict": said.verdict,
        "reason": said.reason,
        "restarts": said.restarts,
        "age_s": said.age_s,
        "silent": said.stale,
    }


def serves(status: Mapping[str, Any]) -> bool:
    """Whether the node serves: a bundle is in place and a probe sees an engine work, whatever the last apply did.

    Without a verdict there is no evidence: an engine that ends again and again is `starting` for ever. `suspect` still
    counts: the engine may only pause, its requests run on, and the lines say so. `unhealthy` follows if it does not.
    """
    return _objection(status) is None


def _objection(status: Mapping[str, Any]) -> str | None:
    """What speaks against it."""
    if not status.get("bundle"):
        return "no bundle is in place"
    if not status["engines"]:
        # A worker of a model across nodes has no probe either: nobody but its last application has looked at it.
        return None if status.get("state") in ("serving", "rolled-back") else "its last application has not succeeded"
    objections = [_objection_to(probe) for probe in status["probes"]]
    return None if None in objections else "; ".join(dict.fromkeys(filter(None, objections)))


def _objection_to(probe: Mapping[str, Any] | None) -> str | None:
    """What speaks against one engine."""
    if probe is None:
        return "the probe is not running"
    if probe["silent"]:
        return "the probe is silent"
    if probe["verdict"] not in (HealthStatus.HEALTHY, HealthStatus.SUSPECT):
        return f"the probe calls the engine {probe['verdict']}"
    return None


def lines(status: Mapping[str, Any]) -> list[str]:
    """The same for a person: plain text, one fact a line, then the ledger of the last application."""
    rows = [
        ("node", status.get("node")),
        ("serves", _serves(status)),
        ("state", _state(status)),
        ("bundle", _short(status.get("bundle"))),
        *((_name(copy, status["engines"]), _probe(probe)) for copy, probe in enumerate(status["probes"])),
        ("GPUs", status.get("gpus")),
        ("Ray nodes", status.get("ray_nodes")),
        *(
            ("versions", ", ".join(f"{k} {v}" for k, v in status["versions"].items()))
            for _ in [0]
            if status["versions"]
        ),
        ("weights", _weights(status.get("weights"))),
        *(("model", f"{one['model']}  prompt {_short(one['prompt_sha256'])}") for one in status["models"]),
        *(("warning", warning) for warning in status.get("warnings", ())),
    ]
    shown = [f"{name:<10}{value}" for name, value in rows if value is not None]
    return [*shown, "", *ledger(status)]


def ledger(status: Mapping[str, Any]) -> list[str]:
    """The cold-start ledger: each phase with its seconds. Phases may overlap, so the sum may be more than the whole."""
    phases = [one for one in status.get("phases", ()) if "seconds" in one]
    if not phases:
        return ["no phase has ended yet"]
    width = max(len(str(one["name"])) for one in phases)
    rows = [f"{one['name']:<{width}}  {one['seconds']:>8.1f} s  {one['result']}" for one in phases]
    return [f"last application, begun {status.get('started')}:", *rows]


def _serves(status: Mapping[str, Any]) -> str:
    objection = _objection(status)
    if objection is not None:
        return f"no: {objection}"
    if not status["engines"]:
        return "yes, its part: the head has the engine"
    working = [probe for probe in status["probes"] if _objection_to(probe) is None]
    if all(probe["verdict"] == HealthStatus.SUSPECT for probe in working):
        return f"yes, but the probe suspects {'each' if len(working) > 1 else 'the'} engine: /ready is 503"
    return "yes" if len(working) == status["engines"] else f"yes, with {len(working)} of {status['engines']} engines"


def _name(copy: int, engines: int) -> str:
    return "probe" if engines == 1 else f"probe {copy}"


def _state(status: Mapping[str, Any]) -> str:
    state, reason = str(status.get("state")), status.get("reason")
    if state == "applying":
        return f"applying bundle {_short(status.get('wanted'))}"
    return f"{state}: {reason}" if reason else state


def _probe(probe: Mapping[str, Any] | None) -> str:
    if probe is None:
        return "not running"
    if probe["silent"]:
        return f"silent for {probe['age_s']:.0f} s; see journalctl -t huddle-probe"
    again = f"; {probe['restarts']} restarts within the hour" if probe["restarts"] else ""
    return f"{probe['verdict']}: {probe['reason']}{again}"


def _weights(weights: Mapping[str, Any] | None) -> str | None:
    return f"{weights['model']}  version {weights['version']}" if weights else None


def _short(digest: Any) -> str | None:
    return str(digest)[:12] if digest else None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
