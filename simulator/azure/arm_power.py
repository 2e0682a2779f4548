"""A VM's power as ARM's HTTP API shows and changes it. `deallocate` stands for the nightly stop and for an eviction."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from simulator.azure.errors import ArmError, not_found
from simulator.azure.state.store import Resource, State

ASYNC_HEADER: Final = "Azure-AsyncOperation"
_POWER: Final = re.compile(
    r"(?P<id>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachines/[^/]+)/"
    r"(?P<action>instanceView|start|deallocate)",
    re.IGNORECASE,
)
_OPERATION: Final = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.Compute/locations/[^/]+/operations/(?P<id>[^/]+)", re.IGNORECASE
)


def answer(state: State, method: str, path: str) -> tuple[int, dict[str, Any]] | None:
    """Status and body of an answer about power; None when the request is about something else.

    Raises:
        ArmError: there is no such VM or operation.
    """
    if found := _POWER.fullmatch(path):
        vm, action = _require(state, found["id"]), found["action"].lower()
        if method == "GET" and action == "instanceview":
            power = vm.notes.get("power", "running")
            return 200, {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": f"PowerState/{power}"}]}
        if method == "POST" and action != "instanceview":
            return 202, _change(vm, action)
    if method == "GET" and (found := _OPERATION.fullmatch(path)):
        return 200, _operation(state, found["id"])
    return None


def _change(vm: Resource, action: str) -> dict[str, Any]:
    """Begin; the body becomes the header that says where to ask how it goes."""
    operation = secrets.token_hex(8)
    vm.notes |= {"power": "starting" if action == "start" else "deallocated", "operation": operation}
    subscription = "/".join(vm.id.split("/")[:3])
    return {ASYNC_HEADER: f"{subscription}/providers/Microsoft.Compute/locations/{vm.location}/operations/{operation}"}


def _operation(state: State, operation: str) -> dict[str, Any]:
    """In progress when asked for the first time, done from then on."""
    vms = state.of_type("compute:VirtualMachine")
    vm = next((vm for vm in vms if vm.notes.get("operation") == operation), None)
    if vm is None:
        raise ArmError(404, "NotFound", f"There is no operation '{operation}'.")
    in_progress = vm.notes["power"] == "starting"
    if in_progress:
        vm.notes["power"] = "running"
    return {"status": "InProgress" if in_progress else "Succeeded"}


def _require(state: State, resource_id: str) -> Resource:
    found = state.get(resource_id)
    if found is None:
        raise not_found(resource_id)
    return found
