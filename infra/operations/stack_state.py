"""What a stack's state says of Azure, read with the pinned Pulumi. Secrets stay encrypted."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping

from huddle.errors import Fault, InputError
from infra import engine

_TIMEOUT_S = 120.0  # a state backend across the ocean
_NO_STACK = "error: no stack named "
"""How the pinned Pulumi begins when its backend has no such stack (seen, 3.274.1)."""
_ARM_ID = re.compile(r"/subscriptions/[0-9a-f-]{36}(?:/[\w.() -]+)*", re.IGNORECASE)


def known_ids(stack: str) -> frozenset[str]:
    """Every ARM id that the state mentions, in lower case; none where the backend has no such stack.

    Raises:
        InputError: the state can't be read.
        infra.engine.EngineUnavailableError: there is no Pulumi engine.
    """
    try:
        done = engine.locate().ask("stack", "export", "--stack", stack, timeout_s=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise InputError(_unreadable(stack, f"Pulumi did not give the state within {_TIMEOUT_S:g} s")) from None
    if done.returncode == 0:
        return ids_in(done.stdout)
    if done.stderr.strip().startswith(_NO_STACK):
        return frozenset()
    said = " ".join(done.stderr.split()).removeprefix("error: ")
    raise InputError(_unreadable(stack, f"Pulumi can't read the stack's state: {said}"))


def node_ids(stack: str, names: Iterable[str]) -> Mapping[str, str]:
    """The ARM ids of those nodes that the state knows, by name. A first `up` that failed has made some, and no outputs.

    Raises:
        InputError: it knows none, or what `known_ids` raises.
    """
    known = known_ids(stack)
    found = {name: each for name in names for each in known if each.endswith(f"/virtualmachines/{name.lower()}")}
    if not found:
        said = f"no node of it is there where Pulumi is logged in; run `make up STACK={stack}` first"
        raise InputError(Fault(f"stacks/Pulumi.{stack}.yaml", "", said))
    return found


def ids_in(state: str) -> frozenset[str]:
    """Every ARM id in an exported state, in lower case."""
    return frozenset(each.lower() for each in _ARM_ID.findall(state))


def _unreadable(stack: str, reason: str) -> Fault:
    step = "log in where the state is (`make pulumi ARGS='login …'`)"
    return Fault(f"stacks/Pulumi.{stack}.yaml", "", f"{reason}; {step}")
