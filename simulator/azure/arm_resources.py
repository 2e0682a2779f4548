"""Single resources as ARM's HTTP API gives them, and run commands that somebody puts beside the program's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Final

from simulator.azure.errors import not_found
from simulator.azure.rules.compute import run_command
from simulator.azure.state.redaction import MARK, digest
from simulator.azure.state.store import Resource, State, now

_COMMAND: Final = re.compile(
    r"(?P<vm>/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Compute/virtualMachines/[^/]+)"
    r"/runCommands/(?P<name>[^/]+)",
    re.IGNORECASE,
)
_IMAGE: Final = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.Compute/locations/[^/]+/publishers/[^/]+/artifacttypes/vmimage"
    r"/offers/[^/]+/skus/[^/]+/versions/(?P<version>[^/]+)",
    re.IGNORECASE,
)
_VIEW: Final = "instanceView"


def answer(
    state: State, method: str, path: str, body: Mapping[str, Any], *, expand: str
) -> tuple[int, dict[str, Any]] | None:
    """Status and body of an answer about one resource; None when the request is about something else.

    Raises:
        ArmError: the VM of a run command is not there, or does not run.
    """
    if method == "GET" and (found := _IMAGE.fullmatch(path)):
        return 200, {"name": found["version"], "properties": {}}  # what an image can do, nobody knows here
    if method == "GET" and "/providers/" in path and not path.endswith(f"/{_VIEW}"):
        resource = state.get(path)
        if resource is None:
            raise not_found(path)
        return 200, shown(resource, view=expand == _VIEW)
    if found := _COMMAND.fullmatch(path):
        if method == "PUT":
            return 200, _put(state, path, found["vm"], found["name"], body)
        if method == "DELETE":
            state.remove(path)
            return 204, {}
    return None


def shown(item: Resource, *, view: bool = False) -> dict[str, Any]:
    """A resource as a GET returns it: no secrets, and how it runs only where that is asked for."""
    hidden = () if view else (_VIEW,)
    visible = {
        key: value
        for key, value in item.properties.items()
        if key not in hidden and not (isinstance(value, dict) and MARK in value)
    }
    tags = visible.pop("tags", None)
    return {"id": item.id, "name": item.name, **({"tags": tags} if tags else {}), "properties": visible}


def _put(state: State, path: str, vm_id: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A run command, which runs unless its last settings were these."""
    vm = state.get(vm_id)
    if vm is None:
        raise not_found(vm_id)
    run_command.require_running(vm)
    given = dict(body.get("properties") or {})
    settings = digest(state.salt, given)
    view = run_command.last_run(vm, name, settings)
    if view is None:
        at, said = datetime.now(UTC).isoformat(), "simulated: the script was not really run"
        view = {
            "executionState": "Succeeded",
            "exitCode": 0,
            "output": said,
            "error": "",
            "startTime": at,
            "endTime": at,
        }
        run_command.remember(vm, name, settings, view)
    properties = {**given, "provisioningState": "Succeeded", _VIEW: deepcopy(view)}
    made = Resource(path, f"azure-native:{run_command.KIND}", properties, location=vm.location, created=now())
    state.put(made)
    return shown(made)
