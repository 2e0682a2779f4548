"""vCPU quota: per family and per region for regular VMs, one pot for Spot.

Facts: docs/facts/azure.md#quota-families. The default limits are the simulator's own and generous; a fault file sets
others under `quota:`.
"""

from __future__ import annotations

from typing import Final

from simulator.azure.errors import ArmError
from simulator.azure.rules.base import Op
from simulator.azure.rules.compute.sizes import family_of, vcpus_of
from simulator.azure.state.store import State
from simulator.plugin.values import dig

REGIONAL: Final = "cores"
SPOT: Final = "lowPriorityCores"
DEFAULT_LIMITS: Final = {REGIONAL: 10_000, SPOT: 4_000}
DEFAULT_FAMILY_LIMIT: Final = 4_000
_LABELS: Final = {REGIONAL: "Total Regional Cores", SPOT: "LowPriorityCores"}


def limit(state: State, quota: str) -> int:
    """The limit of a quota in every region of the simulated subscription."""
    chosen = {name.lower(): value for name, value in state.quota.get("*", {}).items()}
    return chosen.get(quota.lower(), DEFAULT_LIMITS.get(quota, DEFAULT_FAMILY_LIMIT))


def usage(state: State, quota: str, location: str, without: str = "") -> int:
    """vCPUs in use, one VM left out."""
    total = 0
    for vm in state.of_type("compute:VirtualMachine"):
        if vm.location != location or vm.id.lower() == without.lower():
            continue
        size = str(dig(vm.properties, "hardwareProfile.vmSize", ""))
        if quota.lower() in (name.lower() for name in counted(size, vm.properties.get("priority"))):
            total += vcpus_of(size)
    return total


def counted(size: str, priority: object) -> tuple[str, ...]:
    """Quotas a VM counts against."""
    return (SPOT,) if priority in {"Spot", "Low"} else (family_of(size), REGIONAL)


def require(op: Op) -> None:
    """The VM fits into every quota it counts against.

    Raises:
        ArmError: OperationNotAllowed, with the text users know.
    """
    size = str(dig(op.inputs, "hardwareProfile.vmSize", ""))
    needed = vcpus_of(size)
    for quota in counted(size, op.inputs.get("priority")):
        most = limit(op.state, quota)
        used = usage(op.state, quota, op.location, without=op.id)
        if used + needed > most:
            raise exceeded(_LABELS.get(quota, f"{quota} Cores"), op.location, most, used, needed)


def exceeded(label: str, location: str, most: int, used: int, needed: int) -> ArmError:
    """Compute's quota error (text as in public reports)."""
    return ArmError(
        409,
        "QuotaExceeded",
        f"Operation could not be completed as it results in exceeding approved {label} quota. Additional details - "
        f"Deployment Model: Resource Manager, Location: {location}, Current Limit: {most}, Current Usage: {used}, "
        f"Additional Required: {needed}, (Minimum) New Limit Required: {used + needed}. Setup Alerts when Quota "
        "reaches "
        "threshold. Learn more at https://aka.ms/quotamonitoringalerting. Submit a request for Quota increase in the "
        "Azure portal.",
    )
