"""What the node tests look at on a machine, and what they do to it."""

from __future__ import annotations

import time
from collections.abc import Callable

from cloud_init.services import Unit
from tools.node_lab.lab import Node

SERVICES = (Unit.RAY, Unit.MODELS, Unit.VLLM, Unit.WRAPPER)
PATIENCE_S = 240
"""For what must happen by itself: an emulated machine on a busy host is slow."""


def invocations(node: Node) -> dict[str, str]:
    """Of each service, an id that is new whenever it has been started again."""
    names = " ".join(SERVICES)
    ids = node.shell.out(f"systemctl show --value --property=InvocationID {names}").split()
    return dict(zip(SERVICES, ids, strict=True))


def main_pid(node: Node, unit: str) -> int:
    """The process that systemd watches."""
    return int(node.shell.out(f"systemctl show --value --property=MainPID {unit}"))


def prompt_hash(node: Node, model: str) -> str:
    """Of the system prompt that an answer was given with."""
    address = f"http://{node.of.address}:{node.plan.serving.wrapper_port}/v1/chat/completions"
    body = f'{{"model": "{model}", "max_tokens": 1, "messages": [{{"role": "user", "content": "x"}}]}}'
    key = '"X-Backend-Key: $(cat /etc/huddle/credentials/backend_key)"'
    said = node.shell.out(
        f"curl -sS -m 30 -o /dev/null -D - -H {key} -H 'Content-Type: application/json' -d @- {address}", stdin=body
    )
    headers = dict(line.lower().partition(": ")[::2] for line in said.splitlines() if ": " in line)
    return headers["x-huddle-prompt-sha256"]


def eventually(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for what a machine does by itself."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"not within {patience_s} s: {what}"
        time.sleep(1)


def serves_again(node: Node) -> None:
    """A completion comes back, sooner or later."""
    eventually(lambda: node.serves("hl"), f"{node.of.name} serves")


def journal(node: Node, unit: str) -> str:
    """A unit's log of this boot."""
    return node.shell.out(f"journalctl --boot --no-pager --output cat --unit {unit}")
