"""Faults on demand: quota, capacity, conflicts, slowness, failing nodes, half-made resources, throttling.

Read from `AZURE_SIMULATOR_FAULTS` at every operation: the name of a YAML file, or the YAML text itself.
"""

from __future__ import annotations

import hashlib
import os
from enum import UNIQUE, StrEnum, verify
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from huddle import yaml_source
from huddle.errors import Fault as InputFault
from huddle.findings import findings, sentence
from simulator.azure.errors import SimulatorError
from simulator.azure.settings import FAULTS_VARIABLE as VARIABLE

INLINE = f"{VARIABLE} (inline)"


@verify(UNIQUE)
class Operation(StrEnum):
    """What the engine asks of a resource, and what a fault can apply to."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@verify(UNIQUE)
class CapacityCode(StrEnum):
    """Azure's ways of saying that a region or zone is full."""

    SKU = "SkuNotAvailable"
    ALLOCATION = "AllocationFailed"
    ZONAL = "ZonalAllocationFailed"
    OVERCONSTRAINED = "OverconstrainedAllocationRequest"
    OVERCONSTRAINED_ZONAL = "OverconstrainedZonalAllocationRequest"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Match(_Model):
    """Which resources a fault applies to; `*` and `?` as in file names, case ignored."""

    type: str = Field(default="*", description="Resource type without the package: `compute:VirtualMachine`.")
    name: str = Field(default="*", description="Azure name or logical name.")


class _Fault(_Model):
    match: Match = Match()
    operations: tuple[Operation, ...] = Field(default=(Operation.CREATE, Operation.UPDATE), min_length=1)
    times: int | None = Field(default=None, ge=1, description="How many operations it applies to; absent: every one.")
    message: str | None = Field(default=None, description="Text in place of the usual one.")


class QuotaFault(_Fault):
    """The vCPU quota of the VM's family is used up."""

    kind: Literal["quota"]
    match: Match = Match(type="compute:VirtualMachine")
    limit: int = Field(default=0, ge=0, description="vCPUs that the error calls the current limit.")


class CapacityFault(_Fault):
    """Quota is there, machines are not."""

    kind: Literal["capacity"]
    match: Match = Match(type="compute:VirtualMachine")
    code: CapacityCode = CapacityCode.SKU


class ConflictFault(_Fault):
    """409 AnotherOperationInProgress."""

    kind: Literal["conflict"]


class SlowFault(_Fault):
    """The operation takes this much longer."""

    kind: Literal["slow"]
    delay_s: float = Field(gt=0, le=3600, description="Seconds of real time.")


class RunCommandFault(_Fault):
    """The script on the node ends badly: the node does not serve."""

    kind: Literal["run_command"]
    match: Match = Match(type="compute:VirtualMachineRunCommandByVirtualMachine", name="*apply")
    exit_code: int = Field(default=1, ge=1, le=255)
    takes_s: int = Field(default=0, ge=0, description="How long the script runs, in seconds that nobody waits for.")
    log_tail: tuple[str, ...] = Field(
        default=(
            "huddle-apply: bundle applied, starting services",
            "vllm: engine core process died",
            "huddle-apply: readiness: no completion within the deadline, the node does not serve",
        ),
        description="Last lines of the script's output.",
    )


class PartialFault(_Fault):
    """Azure accepts the request, the resource appears, then its long-running operation fails."""

    kind: Literal["partial"]
    code: str = "InternalExecutionError"


class ThrottleFault(_Fault):
    """429 TooManyRequests."""

    kind: Literal["throttle"]
    retry_after_s: int = Field(default=30, ge=1)


class SubnetLinkFault(_Fault):
    """A deleted gateway's link to its delegated subnet stays for a while, and the subnet cannot go."""

    kind: Literal["subnet_link"]
    match: Match = Match(type="apimanagement:ApiManagementService")
    operations: tuple[Operation, ...] = (Operation.DELETE,)
    seconds: float = Field(gt=0, description="How long the link stays, in seconds of real time.")


class InterfaceHeldFault(_Fault):
    """The interfaces of a VM that could not be made, or that was deleted, stay reserved for it for a while."""

    kind: Literal["interface_held"]
    match: Match = Match(type="compute:VirtualMachine")
    operations: tuple[Operation, ...] = (Operation.CREATE, Operation.DELETE)
    seconds: float = Field(gt=0, description="How long they stay reserved, in seconds of real time; Azure's are 180.")


class TrustedLaunchFault(_Fault):
    """The image lacks the mark for Trusted Launch: VMs that ask for it are refused."""

    kind: Literal["trusted_launch"]
    match: Match = Match(type="compute:VirtualMachine")


class Subscription(_Model):
    """How the subscription is, until the file says otherwise."""

    unregistered: tuple[str, ...] = Field(
        default=(), description="Resource providers that nobody has registered, such as `Microsoft.Web`."
    )
    may_register: bool = Field(
        default=True, description="Whether who deploys may register them; the provider registers those that it calls."
    )
    may_assign_roles: bool = Field(default=True, description="Whether who deploys may assign roles.")
    role_delay_s: float = Field(default=0.0, ge=0, description="Seconds until a new role assignment counts.")


Fault = (
    QuotaFault
    | CapacityFault
    | ConflictFault
    | SlowFault
    | RunCommandFault
    | PartialFault
    | ThrottleFault
    | SubnetLinkFault
    | InterfaceHeldFault
    | TrustedLaunchFault
)


class FaultPlan(_Model):
    """A fault file."""

    faults: tuple[Annotated[Fault, Field(discriminator="kind")], ...] = ()
    quota: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="vCPU limits per region by quota name (`cores`, family, `lowPriorityCores`)."
    )
    subscription: Subscription = Subscription()


def load(source: str | None = None, called: str = INLINE) -> FaultPlan:
    """The plan from the environment (or the given source). `called`: what errors call a text that is in no file.

    Raises:
        SimulatorError: a fault for each wrong place, which says where, what and what is allowed.
    """
    text = os.environ.get(VARIABLE, "") if source is None else source
    if not text.strip():
        return FaultPlan()
    if "\n" in text or ": " in text or text.lstrip()[0] in "{[":
        return _parse(text, called)
    try:
        return _parse(Path(text).read_text(), text)
    except OSError as error:
        reason = error.strerror or str(error)
        raise SimulatorError(
            InputFault(text, "", f"the fault file cannot be read ({reason}); name a YAML file")
        ) from error


@lru_cache(maxsize=8)
def _parse(text: str, where: str) -> FaultPlan:
    try:
        document = yaml_source.parse(text, where)
    except yaml_source.YamlSourceError as error:
        reason = f"line {error.line} is not YAML; see simulator/README.md for the format"
        raise SimulatorError(InputFault(where, "", reason)) from error
    if document.repeated:
        raise SimulatorError(*document.twice())
    if not isinstance(document.data, dict):
        keys = "a fault file is a mapping with the keys 'faults', 'quota' and 'subscription'"
        raise SimulatorError(InputFault(where, "", keys))
    try:
        return FaultPlan.model_validate(document.data)
    except ValidationError as error:
        found = findings(error, FaultPlan)
        raise SimulatorError(*(InputFault(where, yaml_source.dotted(f.path), sentence(f)) for f in found)) from error


def key_of(fault: Fault, index: int) -> str:
    """Names a fault in the counter of its uses; editing the fault starts a new count."""
    return hashlib.sha256(f"{index}:{fault.model_dump_json()}".encode()).hexdigest()[:16]


def matching(
    plan: FaultPlan, uses: dict[str, int], operation: Operation, type_key: str, names: tuple[str, ...]
) -> list[Fault]:
    """Faults that apply to this operation now; their counters in `uses` go up."""
    found: list[Fault] = []
    for index, fault in enumerate(plan.faults):
        key = key_of(fault, index)
        if operation not in fault.operations or not _matches(fault.match, type_key, names):
            continue
        if fault.times is not None and uses.get(key, 0) >= fault.times:
            continue
        uses[key] = uses.get(key, 0) + 1
        found.append(fault)
    return found


def _matches(match: Match, type_key: str, names: tuple[str, ...]) -> bool:
    def glob(pattern: str, text: str) -> bool:
        return fnmatchcase(text.lower(), pattern.lower())

    return glob(match.type.removeprefix("azure-native:"), type_key) and any(glob(match.name, name) for name in names)
