"""The outcome of fault injection for one operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.azure.errors import ArmError
    from simulator.azure.faults import RunCommandFault


@dataclass
class InjectedFault:
    """What the faults do to one operation; nothing, unless one applies to it."""

    refusal: ArmError | None = None  # the request is not accepted
    failure: ArmError | None = None  # it is, and fails afterwards
    delay_s: float = 0.0
    run_command: RunCommandFault | None = None
    role_delay_s: float = 0.0
