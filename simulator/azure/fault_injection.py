"""Fault injection, as an operation meets it. What reads fault files (pydantic, YAML) is loaded only when needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.azure.settings import FAULTS_VARIABLE

if TYPE_CHECKING:
    from simulator.azure.errors import ArmError
    from simulator.azure.faults import RunCommandFault
    from simulator.azure.rules.base import Op


@dataclass
class InjectedFault:
    """What the faults do to one operation; nothing, unless one applies to it."""

    refusal: ArmError | None = None  # the request is not accepted
    failure: ArmError | None = None  # it is, and fails afterwards
    delay_s: float = 0.0
    run_command: RunCommandFault | None = None


def are_possible() -> bool:
    """Whether a fault file or text is given at all."""
    return bool(os.environ.get(FAULTS_VARIABLE, "").strip())


def check() -> None:
    """Read the faults once, early.

    Raises:
        SimulatorError: the fault file is wrong.
    """
    if are_possible():
        from simulator.azure import faults  # noqa: PLC0415 - a third of the provider's start-up time

        faults.load()


def apply(op: Op, names: tuple[str, ...]) -> InjectedFault:
    """What the faults do to this operation; their counters go up, and quota limits from the file take effect.

    Raises:
        SimulatorError: the fault file is wrong.
    """
    op.state.quota["*"] = {}
    if not are_possible():
        return InjectedFault()
    from simulator.azure import fault_effects  # noqa: PLC0415 - see above

    return fault_effects.apply(op, names)
