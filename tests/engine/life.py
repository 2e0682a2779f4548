"""A stack that tests live through, step by step, under the real engine on the simulated Azure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pulumi import automation

from infra import program
from infra.rehearsal.record import Record
from infra.rehearsal.sandbox import Sandbox
from plan.azure.model import AzurePlan
from simulator.azure.state.store import State, Store


class Life:
    """A stack that tests live through, step by step."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    def up(self) -> Record:
        return self._do(self.sandbox.stack.up)

    def preview(self) -> Record:
        return self._do(self.sandbox.stack.preview)

    def refresh(self) -> Record:
        return self._do(self.sandbox.stack.refresh)

    def destroy(self) -> Record:
        return self._do(self.sandbox.stack.destroy)

    def fail(self, operation: Callable[..., Any]) -> tuple[str, Record]:
        """Run an operation that must fail; returns everything it said."""
        record = Record()
        with pytest.raises(automation.CommandError) as caught:
            operation(on_event=record.add)
        return "\n".join([*record.diagnostics, str(caught.value)]), record

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        self.sandbox.edit(change)

    def grant_vcpus(self, count: int) -> None:
        """Raise the quota, in the stack file and in the simulated subscription."""
        self.edit(lambda settings: settings["nodes"].update(quota_vcpus=count))
        self.faults(None)

    def faults(self, faults: str | None) -> None:
        self.sandbox.set_faults(self.plan(), faults)

    def plan(self) -> AzurePlan:
        return program.load_plan(self.sandbox.stack_name, self.sandbox.directory)

    @property
    def azure(self) -> State:
        return Store(self.sandbox.azure_state).read()

    def _do(self, operation: Callable[..., Any]) -> Record:
        record, before = Record(), len(self.azure.operations)
        operation(on_event=record.add)
        refused = [it.error for it in self.azure.operations[before:] if it.status == "failed"]
        assert refused == [], "only the provider's patience helped, and on Azure it waits minutes"
        return record
