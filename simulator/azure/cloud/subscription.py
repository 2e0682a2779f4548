"""Create, read, update, delete against the simulated subscription.

One operation: validate and reserve (transaction 1) → wait, if anything asks for it → settle (transaction 2). What is in
flight between the two is visible to everybody, which is where conflicts come from.
"""

from __future__ import annotations

import os
import threading
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from simulator.azure import fault_injection
from simulator.azure.cloud.outputs import build_outputs
from simulator.azure.contracts import refusal
from simulator.azure.errors import ArmError, InitFailedError, PlainError, conflict, not_found
from simulator.azure.fault_injection.outcome import InjectedFault
from simulator.azure.faults import Operation
from simulator.azure.provider.diff import normal_location
from simulator.azure.rules import Op, rules_for
from simulator.azure.rules.network import references
from simulator.azure.sdk.paths import group_of, parent_of, path_of
from simulator.azure.sdk.schema import ResourceSchema
from simulator.azure.settings import Settings
from simulator.azure.state.redaction import mark, private_texts, redact, restore, scrub, secret_texts
from simulator.azure.state.store import OperationRecord, Resource, State, Store, now
from simulator.plugin.values import Secret, reveal


@dataclass
class ResourceRequest:
    """What the engine asks for; inputs may hold secrets."""

    schema: ResourceSchema
    urn: str
    inputs: dict[str, Any]
    timeout_s: float = 0.0
    id: str = ""
    old_inputs: dict[str, Any] = field(default_factory=dict)
    old_outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def logical_name(self) -> str:
        """The name in the program."""
        return self.urn.rsplit("::", 1)[-1]


class Cloud:
    """The simulated Azure Resource Manager of one subscription."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.state)
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """Interrupt every wait."""
        self._cancelled.set()

    def wait(self, azure_s: float) -> bool:
        """Let so many of Azure's seconds pass, and at least as much as an entity stays locked; True: cancelled."""
        return self._cancelled.wait(max(azure_s * self.settings.time_scale, 2 * self.settings.hold_s))

    def location_of_group(self, name: str) -> str | None:
        """Where a resource group is, when it exists."""
        with self.store.reading() as state:
            group = state.get(f"/subscriptions/{self.settings.subscription}/resourceGroups/{name}")
            return group.location if group else None

    def create(self, request: ResourceRequest) -> tuple[str, dict[str, Any]]:
        """Create a resource; returns its id and outputs with secret marks.

        Raises:
            ArmError, PlainError: nothing was created.
            InitFailedError: it exists, but not in a good state.
        """
        resource_id = path_of(request.schema).build(reveal(request.inputs), self.settings.subscription)
        return resource_id, self._write(request, Operation.CREATE, resource_id)

    def update(self, request: ResourceRequest) -> dict[str, Any]:
        """PUT the whole resource again."""
        return self._write(request, Operation.UPDATE, request.id)

    def read(self, request: ResourceRequest) -> tuple[str, dict[str, Any]] | None:
        """Id in the service's spelling, and the resource as a GET shows it; `None` when it is not there."""
        with self.store.reading() as state:
            resource = state.get(request.id)
            if resource is None:
                return None
            plain = restore(deepcopy(resource.properties), state.salt, request.inputs, request.old_outputs)
            return resource.id, mark(plain, request.inputs, secret_texts(request.inputs))

    def delete(self, request: ResourceRequest) -> None:
        """Delete a resource; one that is not there is deleted already."""
        with self.store.reading() as state:
            if state.get(request.id) is None:
                return
        self._run(request, Operation.DELETE, request.id)

    def _write(self, request: ResourceRequest, kind: Operation, resource_id: str) -> dict[str, Any]:
        outcome = self._run(request, kind, resource_id)
        if outcome.failure is not None:
            raise InitFailedError(resource_id, str(outcome.failure), outcome.outputs)
        return outcome.outputs

    def _run(self, request: ResourceRequest, kind: Operation, resource_id: str) -> _Outcome:
        """Accept, wait, settle; an operation that need not wait is one transaction."""
        outcome = _Outcome()
        with self.store.transaction() as state:
            running = self._begin(request, kind, resource_id, state)
            try:
                running.fault = fault_injection.apply(running.op, (running.op.name, request.logical_name))
                running.op.run_command = running.fault.run_command
                running.op.role_delay_s = running.fault.role_delay_s
                self._accept(running)
            except (ArmError, PlainError) as error:
                rules_for(running.op.key).refused(running.op)
                running.close(state, "failed", error)
                outcome.refusal = error
            else:
                delay_s = self._delay_s(running)
                if delay_s == 0:
                    self._settle(running, outcome)
        if outcome.refusal is not None:
            raise outcome.refusal
        if delay_s > 0:
            running.late = self._wait(delay_s, request.timeout_s)
            try:
                with self.store.transaction() as state:
                    running.op.state = state
                    self._settle(running, outcome)
            except BaseException as error:  # whatever happens, its entities must be free again
                with self.store.transaction() as state:
                    running.close(state, "failed", error)
                raise
        if outcome.refusal is not None:
            raise outcome.refusal
        return outcome

    def _begin(self, request: ResourceRequest, kind: Operation, resource_id: str, state: State) -> _Running:
        op = self._op(request, kind, resource_id, state)
        record = OperationRecord(
            seq=len(state.operations) + 1,
            kind=kind.value,
            token=op.schema.token,
            id=op.id,
            name=op.name,
            urn=request.urn,
            start=op.now,
            pid=os.getpid(),
        )
        state.operations.append(record)
        return _Running(op, request, record)

    def _op(self, request: ResourceRequest, kind: Operation, resource_id: str, state: State) -> Op:
        inputs = reveal(request.inputs)
        location = inputs.get("location") or ""
        if not location:
            group = state.get(group_of(resource_id) or "")
            location = group.location if group else ""
        return Op(
            kind=kind,
            schema=request.schema,
            path=path_of(request.schema),
            id=resource_id,
            inputs=inputs,
            state=state,
            now=now(),
            urn=request.urn,
            location=str(normal_location(location)),
            subscription=self.settings.subscription,
            tenant=self.settings.tenant,
            old=state.get(resource_id),
            old_inputs=reveal(request.old_inputs),
        )

    def _validate(self, op: Op) -> None:
        """What ARM itself checks before a resource provider sees the request."""
        if op.kind is Operation.CREATE and op.old is not None:
            raise PlainError(f"cannot create already existing resource '{op.id}'")
        if op.kind is Operation.UPDATE and op.old is None:
            raise not_found(op.id)
        group = group_of(op.id)
        if group and group.lower() != op.id.lower() and op.state.get(group) is None:
            name = group.rsplit("/", 1)[-1]
            raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        parent = parent_of(op.id)
        if parent and op.state.get(parent) is None:
            raise ArmError(
                404,
                "ParentResourceNotFound",
                f"Failed to perform 'write' on resource(s) of type '{op.path.arm_type}', because the parent resource "
                f"'{parent}' could not be found.",
            )
        self._require_same_place(op)
        refusal.require(op.schema, op.inputs)
        references.require(op)

    def _require_same_place(self, op: Op) -> None:
        """A tracked resource never moves to another region; where Pulumi does not replace it, ARM refuses."""
        if op.old is None or "location" not in op.inputs or op.old.location in ("", op.location):
            return
        group = op.id.split("/resourceGroups/")[-1].split("/")[0]
        raise conflict(
            "InvalidResourceLocation",
            f"The resource '{op.name}' already exists in location '{op.old.location}' in resource group '{group}'. A "
            f"resource with the same name cannot be created in location '{op.location}'. Please select a new resource "
            "name.",
        )

    def _accept(self, running: _Running) -> None:
        """Everything that can refuse the request, then the resource as it looks while it is being made."""
        op, request = running.op, running.request
        rules = rules_for(op.key)
        if op.kind is Operation.DELETE:
            running.refuse()
            rules.delete(op)
            _lock(op, running.record)
            return
        self._validate(op)
        running.refuse()
        (rules.create if op.kind is Operation.CREATE else rules.update)(op)
        _lock(op, running.record)
        resource = op.old or Resource(op.id, op.schema.token, {}, created=op.now)
        running.outputs = build_outputs(op)
        resource.properties = redact(running.outputs, request.inputs, op.state.salt)
        resource.location = op.location
        resource.refs = sorted({*references.found_in(op.inputs), *(ref.lower() for ref in op.extra_refs)})
        resource.notes = {**resource.notes, **op.notes}
        op.state.put(resource)

    def _settle(self, running: _Running, outcome: _Outcome) -> None:
        """The end of the long-running operation."""
        op = running.op
        if op.kind is Operation.DELETE:
            for gone in op.state.remove(op.id):
                rules_for(gone.key).removed(op, gone)
            running.close(op.state, "succeeded")
            return
        resource = op.state.get(op.id)
        if resource is None:
            outcome.refusal = not_found(op.id)
            running.close(op.state, "failed", outcome.refusal)
            return
        outcome.failure = running.late or running.fault.failure or rules_for(op.key).settled(op, resource)
        if "provisioningState" in op.schema.outputs:
            resource.properties["provisioningState"] = "Failed" if outcome.failure else "Succeeded"
        inputs = running.request.inputs
        plain = restore(deepcopy(resource.properties), op.state.salt, inputs, Secret(running.outputs))
        outcome.outputs = mark(plain, inputs, secret_texts(inputs))
        running.close(op.state, "partial" if outcome.failure else "succeeded", outcome.failure)

    def _delay_s(self, running: _Running) -> float:
        rules = rules_for(running.op.key)
        delay = running.fault.delay_s + rules.typical_seconds * self.settings.time_scale
        return max(delay, self.settings.hold_s) if rules.exclusive(running.op) else delay

    def _wait(self, delay_s: float, timeout_s: float) -> PlainError | None:
        """Wait; says what cut it short."""
        limit = min(delay_s, timeout_s) if timeout_s > 0 else delay_s
        if self._cancelled.wait(limit):
            return PlainError("operation cancelled")
        return PlainError("operation timed out") if limit < delay_s else None


@dataclass
class _Running:
    """An operation on its way."""

    op: Op
    request: ResourceRequest
    record: OperationRecord
    fault: InjectedFault = field(default_factory=InjectedFault)
    late: PlainError | None = None
    outputs: dict[str, Any] = field(default_factory=dict)  # as computed, before secrets were taken out

    def refuse(self) -> None:
        """Raise the faults' refusal, if there is one."""
        if self.fault.refusal is not None:
            raise self.fault.refusal

    def close(self, state: State, status: str, error: BaseException | None = None) -> None:
        """Write down how it ended."""
        entry = state.operations[self.record.seq - 1]
        entry.end, entry.status, entry.locks = now(), status, []
        entry.error = scrub(str(error), private_texts(self.request.inputs)) if error else ""


@dataclass
class _Outcome:
    """How an operation ended."""

    outputs: dict[str, Any] = field(default_factory=dict)
    failure: ArmError | PlainError | None = None
    refusal: ArmError | PlainError | None = None


def _lock(op: Op, record: OperationRecord) -> None:
    """Take the entities this operation writes; refuse when another operation has one of them.

    Raises:
        ArmError: what Azure says about that.
    """
    rules = rules_for(op.key)
    keys = [key.lower() for key in rules.exclusive(op)]
    for other in op.state.running():
        if other.seq == record.seq:
            continue
        taken = [key for key in keys if key in other.locks]
        if taken:
            raise rules.busy(op, taken[0])
        if other.id.lower() == op.id.lower():
            raise conflict("Conflict", f"Another operation on '{op.id}' is in progress.")
    record.locks = keys
