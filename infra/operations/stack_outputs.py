"""What a stack's state says, read with the pinned Pulumi. Secrets are not asked for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from infra import engine
from plan import stack_file
from plan.errors import Fault, InputError

TIMEOUT_S = 120.0
_NO_STACK = "no stack named "
"""How the pinned Pulumi begins when its backend has no such stack (seen, 3.274.1)."""


class NoStackError(InputError):
    """The backend has no such stack, so nothing of it stands anywhere. Other reasons leave that open."""


def outputs(stack: str) -> Mapping[str, Any]:
    """The outputs of the last `up`.

    Raises:
        NoStackError: the backend has no such stack.
        InputError: the state can't be read.
        infra.engine.EngineUnavailableError: there is no Pulumi engine to be had.
    """
    found = engine.locate()
    file = f"stacks/Pulumi.{stack}.yaml"
    line = [str(found.pulumi), "stack", "output", "--json", "--non-interactive", "--stack", stack]
    try:
        answer = subprocess.run(
            line,
            env=found.environment(),
            cwd=stack_file.ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(Fault(file, "", f"Pulumi did not give the stack's outputs within {TIMEOUT_S:g} s")) from None
    if answer.returncode:
        told = [text.removeprefix("error: ") for text in answer.stderr.splitlines() if text.strip()]
        reason = told[-1] if told else "it says nothing"
        if reason.startswith(_NO_STACK):
            raise NoStackError(
                Fault(file, "", f"{reason} where Pulumi is logged in; run `make up STACK={stack}` first")
            )
        step = "log in where its state is (`make pulumi ARGS='login …'`)"
        raise InputError(Fault(file, "", f"Pulumi can't read the stack's state: {reason}; {step}"))
    known: Mapping[str, Any] = json.loads(answer.stdout or "{}")
    return known


def gateway_id(known: Mapping[str, Any], stack: str) -> str:
    """The gateway's ARM id.

    Raises:
        InputError: the stack was never brought up.
    """
    found = known.get("gateway_id")
    if not isinstance(found, str):
        raise InputError(
            Fault(f"stacks/Pulumi.{stack}.yaml", "", f"has no gateway yet; run `make up STACK={stack}` first")
        )
    return found
