"""Which attempt a run command is: another number after a failure, so that Azure runs it again (docs/decisions/0016)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from pulumi_azure_native import compute

FIRST = 1
SUCCEEDED = "Succeeded"
FAILED = frozenset({"Canceled", "Failed", "TimedOut"})
"""States that end without success, of a script (`executionState`) and of a resource (`provisioningState`)."""
_NOT_THERE = re.compile(r"\b404\b|NotFound\b")
"""What the provider says of a command whose group, VM or self does not exist."""


@verify(UNIQUE)
class Parameter(StrEnum):
    """What a run command is given besides its script, as environment variables. The script need not read them."""

    ATTEMPT = "HUDDLE_ATTEMPT"
    SECRETS = "HUDDLE_SECRETS"


@dataclass(frozen=True)
class LastRun:
    """How a command that Azure knows was last run."""

    parameters: Mapping[str, str]
    states: frozenset[str]

    @property
    def failed(self) -> bool:
        """Whether it must run again. One that still runs has not failed: to ask for the same is to wait for its end."""
        return bool(self.states & FAILED)


def number(last: LastRun | None) -> int:
    """One more than a failed attempt; else the number that Azure knows, so that equal settings stay equal."""
    if last is None:
        return FIRST
    known = last.parameters.get(Parameter.ATTEMPT, "")
    attempt = int(known) if known.isdecimal() else FIRST
    return attempt + 1 if last.failed else attempt


def last_run(group: str, vm: str, command: str) -> LastRun | None:
    """Ask Azure, in previews as well; None when there is no such command yet.

    Raises:
        Exception: Azure could not be asked (no login, no right to read), in the provider's words.
    """
    try:
        found = compute.get_virtual_machine_run_command_by_virtual_machine(
            resource_group_name=group, vm_name=vm, run_command_name=command, expand="instanceView"
        )
    except Exception as error:  # the SDK has no narrower class for what a provider answers
        if _NOT_THERE.search(str(error)):
            return None
        raise
    view = found.instance_view
    states = {found.provisioning_state, view.execution_state if view else None}
    return LastRun(
        parameters={one.name: one.value for one in found.parameters or ()},
        states=frozenset(state for state in states if state),
    )
