"""The simulator's own knobs, all from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.azure.errors import SimulatorError
from simulator.azure.sdk.paths import SUBSCRIPTION, TENANT

STATE_VARIABLE: Final = "AZURE_SIMULATOR_STATE"
SCALE_VARIABLE: Final = "AZURE_SIMULATOR_TIME_SCALE"
FAULTS_VARIABLE: Final = "AZURE_SIMULATOR_FAULTS"


@dataclass(frozen=True)
class Settings:
    """How this provider process behaves."""

    state: Path
    time_scale: float  # real seconds per typical Azure second; 0 = no waiting
    hold_s: float  # how long an entity that takes one write at a time stays locked, at least
    subscription: str = SUBSCRIPTION
    tenant: str = TENANT


def from_environment() -> Settings:
    """Read the settings.

    Raises:
        SimulatorError: a value is not what it should be.
    """
    return Settings(
        state=Path(os.environ.get(STATE_VARIABLE) or "azure-simulator.json").absolute(),
        time_scale=_number(SCALE_VARIABLE, 0.0, 1.0),
        hold_s=_number("AZURE_SIMULATOR_HOLD_S", 0.02, 60.0),
        subscription=os.environ.get("ARM_SUBSCRIPTION_ID") or SUBSCRIPTION,
        tenant=os.environ.get("ARM_TENANT_ID") or TENANT,
    )


def _number(variable: str, default: float, highest: float) -> float:
    text = os.environ.get(variable, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 <= value <= highest:
        raise SimulatorError(f"{variable}: '{text}' is not allowed; give a number from 0 to {highest:g}")
    return value
