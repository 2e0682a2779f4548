"""Fault injection, as an operation meets it. What reads fault files (pydantic, YAML) is loaded only when needed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from simulator.azure.fault_injection.outcome import InjectedFault
from simulator.azure.settings import FAULTS_VARIABLE

if TYPE_CHECKING:
    from simulator.azure.rules.base import Op


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
    from simulator.azure.fault_injection import effects  # noqa: PLC0415 - see above

    return effects.apply(op, names)
