"""What a stack's state says, read with the pinned Pulumi. Secrets are not asked for."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from infra import stack_file
from infra.errors import Fault, InputError
from tools import engine

TIMEOUT_S = 120.0


def outputs(stack: str) -> Mapping[str, Any]:
    """The outputs of the last `up`.

    Raises:
        InputError: there is no state to be read, or nothing was ever brought up.
        tools.engine.EngineUnavailableError: there is no Pulumi engine to be had.
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
        raise InputError(
            Fault(file, "", f"Pulumi can't read the stack's state: {told[-1] if told else 'it says nothing'}")
        )
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
