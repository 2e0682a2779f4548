"""What the node tests look at on a machine, and what they do to it."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cloud_init.bundle.services import Unit
from tools.deadlines import scaled
from tools.node_lab.lab import Node
from tools.node_lab.shell import Done

VLLM = Unit.VLLM.of(0)
SERVICES = (Unit.RAY, Unit.MODELS, VLLM, Unit.WRAPPER)
PATIENCE_S = 240
"""For what must happen by itself in an emulated machine on an idle host."""

QUICK_S = {"credentials": 10, "clock": 4, "packages": 60, "readiness": int(scaled(150))}
"""Deadlines for what must fail; where waiting is the point a test says less."""


def invocations(node: Node) -> dict[str, str]:
    """Of each service, an id that is new whenever it has been started again."""
    names = " ".join(SERVICES)
    ids = node.shell.out(f"systemctl show --value --property=InvocationID {names}").split()
    return dict(zip(SERVICES, ids, strict=True))


def main_pid(node: Node, unit: str) -> int:
    """The process that systemd watches."""
    return int(node.shell.out(f"systemctl show --value --property=MainPID {unit}"))


def chat(node: Node, model: str, options: str, **fields: Any) -> str:
    """What curl says of a chat with the node's own key."""
    address = f"http://{node.of.address}:{node.plan.serving.wrapper_port}/v1/chat/completions"
    body = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], **fields}
    key = '"X-Backend-Key: $(head -n 1 /etc/huddle/credentials/backend_key)"'
    asked = f"curl -sS -m 60 {options} -H {key} -H 'Content-Type: application/json' -d @- {address}"
    return node.shell.out(asked, stdin=json.dumps(body))


def answers_during(node: Node, command: str) -> list[str]:
    """How questions about the wrapper's health end while a command runs: curl's exit code and HTTP's status."""
    url = f"http://{node.of.address}:{node.plan.serving.wrapper_port}/health"
    ask = f"curl -s -o /dev/null -m 60 -w '%{{exitcode}} %{{http_code}}\\n' {url}"
    said = node.shell.out(f"{command} & running=$!; while kill -0 $running 2>/dev/null; do {ask}; sleep 0.1; done")
    return said.splitlines()


def prompt_hash(node: Node, model: str) -> str:
    """Of the system prompt that an answer was given with."""
    said = chat(node, model, "-o /dev/null -D -")
    headers = dict(line.lower().partition(": ")[::2] for line in said.splitlines() if ": " in line)
    return headers["x-huddle-prompt-sha256"]


def eventually(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for what a machine does by itself."""
    end = time.monotonic() + scaled(patience_s)
    while not true():
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        time.sleep(1)


def serves_again(node: Node) -> None:
    """A completion comes back, sooner or later."""
    eventually(lambda: node.serves("hl"), f"{node.of.name} serves")


def journal(node: Node, unit: str) -> str:
    """A unit's log of this boot."""
    return node.shell.out(f"journalctl --boot --no-pager --output cat --unit {unit}")


@contextmanager
def changed(node: Node, path: str, content: str | None) -> Iterator[None]:
    """A file with another content, or none, for a while."""
    node.shell.out(f"cp --archive {path} {path}.lab-kept")
    try:
        node.shell.out(f"rm {path}" if content is None else f"printf %s {shlex.quote(content)} >{path}")
        yield
    finally:
        node.shell.out(f"mv {path}.lab-kept {path}")


def fails(done: Done, node: Node, phase: str, sentence: str) -> dict[str, Any]:
    """A bundle was refused: exit code, named state, one sentence, in the status file as on stderr."""
    assert done.code == 1, f"{done.out}\n{done.err}"
    status = node.status()
    assert (status["state"], status["failed_phase"]) == ("failed", phase), status
    assert re.search(sentence, status["reason"]), status["reason"]
    assert "\n" not in status["reason"]
    assert status["reason"] in done.err.splitlines()[-1]
    return status


def exposures(node: Node, units: Iterable[str]) -> dict[str, float]:
    """What `systemd-analyze security` says of units: 0 is best, 10 worst."""
    said = node.shell.out(f"systemd-analyze security --no-pager {' '.join(units)}")
    return {unit: float(score) for unit, score in re.findall(r"exposure level for (\S+): (\d+\.\d)", said)}
