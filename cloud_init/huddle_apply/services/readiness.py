"""A node is ready when it answers: a real completion through the wrapper, by the right model, with the right prompt."""

from __future__ import annotations

import hmac
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from .. import files
from ..failure import ApplyError
from ..installed import credentials
from ..ledger import Ledger, say
from ..machine import commands, systemd
from ..machine.systemd import UnitState
from ..paths import NodePaths
from ..unpacked import Unpacked

PROMPT_HASH_HEADER = "X-Huddle-Prompt-SHA256"
WRAPPER = "huddleai_api.service"
BACKEND_KEY_HEADER = "X-Backend-Key"
RESTARTS_THAT_ARE_TOO_MANY = 3
"""An engine that has died this often while we waited will not come up by waiting longer."""
POLL_S = 3.0
_REPORT_S = 30.0
_COMPLETION_S = 120.0
_READY_S = 10.0
_HELLO = "Say hello."


class Question(NamedTuple):
    """How a route is asked for a few tokens: path, body, and where its answer holds them and their count."""

    path: str
    body: Mapping[str, Any]
    holds: str
    counts: str


_CHAT = {"messages": [{"role": "user", "content": _HELLO}], "max_tokens": 4}
QUESTIONS: Mapping[str, Question] = MappingProxyType(
    {
        "chat": Question("/v1/chat/completions", _CHAT, "choices", "completion_tokens"),
        "completions": Question("/v1/completions", {"prompt": _HELLO, "max_tokens": 4}, "choices", "completion_tokens"),
        "responses": Question("/v1/responses", {"input": _HELLO, "max_output_tokens": 16}, "output", "output_tokens"),
        "embeddings": Question("/v1/embeddings", {"input": _HELLO}, "data", "prompt_tokens"),
    }
)


def check_gpus(expected: int) -> int:
    """Count the GPUs that the driver shows. Of a machine that shall have none, nothing is asked.

    Raises:
        ApplyError: the driver does not answer, or the count is not the size's.
    """
    if expected == 0:
        return 0
    try:
        found = sum(line.startswith("GPU ") for line in commands.run(["nvidia-smi", "-L"], deadline_s=120).splitlines())
    except ApplyError as failure:
        raise ApplyError(
            f"the GPU driver does not answer ({failure}); driver and libraries of one version? `dpkg -l 'nvidia-*'`",
            failure.log,
        ) from failure
    if found != expected:
        raise ApplyError(
            f"this machine has {found} GPUs, its size has {expected}; deallocate and start it, or report it"
        )
    return found


def wait(paths: NodePaths, bundle: Unpacked, ledger: Ledger, deadline_s: float) -> None:
    """Wait until every served name answers.

    Raises:
        ApplyError: a service has failed for good, or the deadline has passed; with the log of the service to blame.
    """
    expects = bundle.node["expects"]
    units = [service["unit"] for service in bundle.node["services"]]
    before = systemd.states(units)
    end = time.monotonic() + deadline_s
    pause_s = min(POLL_S, deadline_s / 10)
    reported = time.monotonic()
    while True:
        now = systemd.states(units)
        _refuse_broken(before, now)
        asked = time.monotonic()
        problem, blamed = _problem(paths, expects, now)
        if problem is None:
            ledger.note(answers_s=round(time.monotonic() - asked, 1))
            break
        if time.monotonic() > end:
            log = systemd.log_of(blamed) if blamed else _log_to_blame(now)
            raise ApplyError(f"not ready after {deadline_s:.0f} s: {problem}", log)
        if time.monotonic() - reported > _REPORT_S:
            reported = time.monotonic()
            say(f"not ready yet: {problem}")
        time.sleep(pause_s)
    _check_ray(bundle, expects["ray"], ledger, end, pause_s)


def _problem(
    paths: NodePaths, expects: Mapping[str, Any], now: Mapping[str, UnitState]
) -> tuple[str | None, str | None]:
    """Why the node is not ready, as a sentence, and the unit whose log tells more; None when it is."""
    waiting = _not_active(now)
    if waiting:
        return f"{', '.join(waiting)} not active", None
    for answer in expects["answers"]:
        problem = _answer_problem(paths, expects["wrapper"], answer)
        if problem is not None:
            return problem, None
    engines = expects.get("engines", ())  # (a bundle of before, to go back to, names none)
    if len(engines) <= 1:
        return None, None
    # One engine is enough for an answer. Each must have shown a token to its probe, and be in the wrapper's eyes, too.
    for copy, unit in enumerate(engines):
        objection = _verdict_objection(paths.verdict(copy))
        if objection is not None:
            return f"{unit} does not serve: {objection}", unit
    return _unseen_engines(expects["wrapper"], len(engines)), None


def _verdict_objection(file: Path) -> str | None:
    """What an engine's probe holds against it (`huddle.probe.verdict` writes the file)."""
    said = files.read_json(file)
    if not said:
        return "its probe has not spoken"
    return None if said.get("ready") is True else str(said.get("reason"))


def _unseen_engines(wrapper: str, engines: int) -> str | None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{wrapper}/ready", timeout=_READY_S) as response:
            answering = json.load(response)["engines"]["answering"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"the wrapper does not say how many engines answer ({error})"
    return None if answering == engines else f"{answering} of {engines} engines answer"


def _refuse_broken(before: Mapping[str, UnitState], now: Mapping[str, UnitState]) -> None:
    for unit, state in now.items():
        if state.active == "failed":
            raise ApplyError(f"{unit} has failed", systemd.log_of(unit))
        again = state.restarts - before[unit].restarts
        if again >= RESTARTS_THAT_ARE_TOO_MANY:
            raise ApplyError(f"{unit} has ended by itself {again} times since its start", systemd.log_of(unit))


def _log_to_blame(now: Mapping[str, UnitState]) -> str:
    """Of what is not active, else of the wrapper, which says what it thinks of the engine."""
    units = _not_active(now) or [unit for unit in now if unit == WRAPPER] or list(now)
    return systemd.log_of(units[-1]) if units else ""


def _not_active(now: Mapping[str, UnitState]) -> list[str]:
    return [unit for unit, state in now.items() if state.active != "active"]


def _answer_problem(paths: NodePaths, wrapper: str, answer: Mapping[str, Any]) -> str | None:
    """Ask one served name for a few tokens. A wrong prompt may be one that is just being reloaded: asked again."""
    name = answer["model"]
    question = QUESTIONS[answer.get("route", "chat")]  # (a bundle of before, to go back to, names none)
    key = credentials.newest(paths, "backend_key")
    request = urllib.request.Request(  # noqa: S310 - the node's own address
        f"{wrapper}{question.path}",
        data=json.dumps({"model": name, **question.body}).encode(),
        headers={"Content-Type": "application/json", BACKEND_KEY_HEADER: key},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_COMPLETION_S) as response:
            body, prompt = json.load(response), response.headers.get(PROMPT_HASH_HEADER)
    except urllib.error.HTTPError as error:
        return f"the wrapper answers {error.code} for {name}: {error.read(300).decode(errors='replace')}"
    except (OSError, ValueError) as error:
        return f"the wrapper does not answer for {name} ({getattr(error, 'reason', None) or error})"
    if not body.get(question.holds) or not body.get("usage", {}).get(question.counts):
        return f"the answer of {name} holds no token"
    # vLLM answers in the first of its names, whichever was asked (seen with 0.32.0).
    if body.get("model") not in (name, *answer["names"]):
        return f"asked {name}, answered by {body.get('model')}"
    if prompt != keyed_hash(key, answer["prompt_sha256"]):
        return f"{name} does not have the system prompt of this bundle"
    return None


def keyed_hash(backend_key: str, prompt_sha256: str | None) -> str | None:
    """What the wrapper shows of a prompt to who holds the backend key (`huddle.wrapper.access.auth.keyed_hash`)."""
    return prompt_sha256 and hmac.digest(backend_key.encode(), prompt_sha256.encode(), "sha256").hex()


def _check_ray(bundle: Unpacked, expected: Mapping[str, Any], ledger: Ledger, end: float, pause_s: float) -> None:
    """Count Ray's nodes. A model across nodes needs them all; a replica serves without, so there it is a warning."""
    while True:
        alive = _ray_nodes(bundle)
        ledger.note(ray_nodes=len(alive))
        own = bundle.node["address"]
        missing = expected["nodes"] - len(alive)
        if own not in alive:
            problem = f"Ray does not know this node as {own}"
        elif missing > 0:
            problem = f"{missing} of {expected['nodes']} nodes have not joined Ray"
        else:
            return
        if not expected["required"]:
            ledger.warn(problem)
            return
        if time.monotonic() > end:
            raise ApplyError(problem, systemd.log_of("huddle-ray.service"))
        time.sleep(pause_s)


def _ray_nodes(bundle: Unpacked) -> list[str]:
    """Private addresses of the nodes that are alive."""
    program = bundle.path / "bin" / "huddle-ray-nodes"
    said = commands.output([str(program), bundle.node["expects"]["ray"]["address"]], deadline_s=60)
    try:
        return [str(address) for address in json.loads(said or "")]
    except ValueError:
        return []
