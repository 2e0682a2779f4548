"""A small command on a node, put three times, to see when Azure runs it (docs/facts/azure.md#run-command)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from components.attempts import FAILED, SUCCEEDED, Parameter
from infra.operations import api_versions
from infra.operations.arm import Arm, ArmError
from infra.proof.evidence import Body, Run, Trial, properties

COMMAND = "huddle-proof"
"""The beginning of its name. Each trial has a name of its own, as the node remembers what ran under one, for ever."""
SCRIPT = Path(__file__).with_name("ask-node.sh")
PAUSE_S, DEADLINE_S = 5.0, 900.0
"""An agent that was never told otherwise looks every 300 s."""
_SCRIPT_S = 120
_ENDED = FAILED | {SUCCEEDED}


def run(
    arm: Arm,
    vm_id: str,
    location: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Trial:
    """Put the command new, as it was, and with another parameter; then delete it.

    Raises:
        ArmError: Azure refused, did not answer, or was not done within 15 minutes.
    """
    command = f"{vm_id}/runCommands/{COMMAND}-{uuid.uuid4().hex[:8]}"

    def put(attempt: int) -> Run:
        begin = clock()
        arm.put(command, api_versions.COMPUTE, _body(location, attempt))
        while not _ended(found := arm.get(command, api_versions.COMPUTE, expand="instanceView")):
            if clock() - begin > DEADLINE_S:
                raise ArmError(f"Azure was not done with {COMMAND} after {DEADLINE_S / 60:.0f} min; ask again later.")
            sleep(PAUSE_S)
        return _run(found, clock() - begin)

    try:
        return Trial(first=put(1), equal=put(1), changed=put(2))
    finally:
        with suppress(ArmError):  # then it goes with its VM
            arm.send("DELETE", command, api_versions.COMPUTE)


def _body(location: str, attempt: int) -> Body:
    return {
        "location": location,
        "properties": {
            "source": {"script": SCRIPT.read_text(encoding="utf-8")},
            "parameters": [{"name": Parameter.ATTEMPT.value, "value": str(attempt)}],
            "asyncExecution": False,
            "timeoutInSeconds": _SCRIPT_S,
        },
    }


def _ended(command: Body) -> bool:
    view = properties(command).get("instanceView") or {}
    return {properties(command).get("provisioningState"), view.get("executionState")} <= _ENDED


def _run(command: Body, took_s: float) -> Run:
    view = properties(command)["instanceView"]
    parameters = properties(command).get("parameters") or []
    return Run(
        started=str(view.get("startTime") or ""),
        output=str(view.get("output") or ""),
        parameters={str(one.get("name")): str(one.get("value")) for one in parameters},
        took_s=took_s,
    )
