"""What each fault does to an operation, in Azure's words."""

from __future__ import annotations

from simulator.azure.errors import ArmError
from simulator.azure.fault_injection import rights
from simulator.azure.fault_injection.outcome import InjectedFault
from simulator.azure.faults import (
    CapacityCode,
    CapacityFault,
    ConflictFault,
    Fault,
    InterfaceHeldFault,
    PartialFault,
    QuotaFault,
    RunCommandFault,
    SlowFault,
    SubnetLinkFault,
    ThrottleFault,
    TrustedLaunchFault,
    load,
    matching,
)
from simulator.azure.rules.base import Op
from simulator.azure.rules.compute.quota import exceeded
from simulator.azure.rules.compute.sizes import family_of, vcpus_of
from simulator.plugin.values import dig


def apply(op: Op, names: tuple[str, ...]) -> InjectedFault:
    """What the faults do to this operation.

    Raises:
        SimulatorError: the fault file is wrong.
    """
    plan = load()
    op.state.quota["*"] = dict(plan.quota)
    injected = InjectedFault(refusal=rights.refusal(op, plan.subscription), role_delay_s=plan.subscription.role_delay_s)
    for fault in matching(plan, op.state.fault_uses, op.kind, op.key, names):
        refusal = _refusal(op, fault)
        if refusal is not None and injected.refusal is None:
            injected.refusal = ArmError(
                refusal.status, refusal.code, fault.message or refusal.message, retry_after_s=refusal.retry_after_s
            )
        if isinstance(fault, PartialFault):
            text = fault.message or "An internal execution error occurred. Please retry later."
            injected.failure = ArmError(200, fault.code, text)
        elif isinstance(fault, SlowFault):
            injected.delay_s += fault.delay_s
        elif isinstance(fault, RunCommandFault):
            injected.run_command = fault
        elif isinstance(fault, SubnetLinkFault):
            op.link_stays_s = fault.seconds
        elif isinstance(fault, InterfaceHeldFault):
            op.interfaces_held_s = fault.seconds
    return injected


def _refusal(op: Op, fault: Fault) -> ArmError | None:
    if isinstance(fault, QuotaFault):
        size = str(dig(op.inputs, "hardwareProfile.vmSize", "unknown size"))
        return exceeded(f"{family_of(size)} Cores", op.location, fault.limit, fault.limit, vcpus_of(size))
    if isinstance(fault, CapacityFault):
        return _capacity(op, fault.code)
    if isinstance(fault, ConflictFault):
        return ArmError(
            409,
            "AnotherOperationInProgress",
            "Another operation on this or dependent resource is in progress.",
        )
    if isinstance(fault, ThrottleFault):
        return ArmError(
            429,
            "TooManyRequests",
            f"The request is being throttled; retry after {fault.retry_after_s} seconds.",
            retry_after_s=fault.retry_after_s,
        )
    if isinstance(fault, TrustedLaunchFault) and dig(op.inputs, "securityProfile.securityType") == "TrustedLaunch":
        return ArmError(
            400,
            "BadRequest",
            "Use of TrustedLaunch setting is not supported for the provided image. Please select Trusted Launch "
            "Supported Gen2 OS Image. For more information, see https://aka.ms/TrustedLaunch-FAQ.",
        )
    return None


def _capacity(op: Op, code: CapacityCode) -> ArmError:
    size = dig(op.inputs, "hardwareProfile.vmSize", "the requested size")
    zones = op.inputs.get("zones") or []
    texts = {
        CapacityCode.SKU: (
            f"The requested VM size for resource 'Following SKUs have failed for Capacity Restrictions: {size}' is "
            f"currently not available in location '{op.location}'. Please try another size or deploy to a different "
            "location or different zone. See https://aka.ms/azureskunotavailable for details."
        ),
        CapacityCode.ALLOCATION: (
            "Allocation failed. We do not have sufficient capacity for the requested VM size in this region."
        ),
        CapacityCode.ZONAL: (
            "Allocation failed. We do not have sufficient capacity for the requested VM size in zone "
            f"'{', '.join(zones) or '1'}'."
        ),
        CapacityCode.OVERCONSTRAINED: _overconstrained("VM Size"),
        CapacityCode.OVERCONSTRAINED_ZONAL: _overconstrained("VM Size, Availability Zone"),
    }
    return ArmError(409, code.value, texts[code])


def _overconstrained(constraints: str) -> str:
    return (
        "Allocation failed. VM(s) with the following constraints cannot be allocated, because the condition is too "
        f"restrictive: {constraints}. Please remove some constraints and try again."
    )
