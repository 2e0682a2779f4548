"""Managed run commands: the simulated node runs nothing, and says so.

A script succeeds unless a `run_command` fault applies. With `treatFailureAsDeploymentFailure` a failing script fails
the deployment after the resource exists. As in Azure, equal settings are not run again: the last result stays, a
failure as well (docs/facts/azure.md#run-command).
"""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.faults import Operation
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.redaction import MARK, UNKNOWN_TEXT
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig

if TYPE_CHECKING:
    from simulator.azure.faults import RunCommandFault

KIND: Final = "compute:VirtualMachineRunCommandByVirtualMachine"
DEPLOYMENT_LIMIT_S: Final = 5_400
"""Azure's time for an extension to report its end; a script may be allowed more, but then nobody waits for it."""
MOST_ON_A_VM: Final = 25
TAIL_BYTES: Final = 4 * 1024
"""What the handler passes on of each stream."""
_NOT_SETTINGS: Final = frozenset({"location", "resourceGroupName", "runCommandName", "tags", "vmName"})
"""What the handler on the VM never sees: a change of these runs nothing."""
_RUNS: Final = "runCommands"
"""The VM's note: by a command's name, digest of its last settings and how that run ended. It outlives the command."""
_HELP: Final = "More information on troubleshooting is available at https://aka.ms/vmextensionlinuxtroubleshoot."


@imitates(KIND)
class RunCommand(Rules):
    """Microsoft.Compute/virtualMachines/runCommands."""

    defaults: ClassVar[dict[str, Any]] = {
        "asyncExecution": False,
        "timeoutInSeconds": 0,
        "treatFailureAsDeploymentFailure": False,
    }
    hidden = ("protectedParameters", "runAsPassword")
    typical_seconds = 60.0

    def create(self, op: Op) -> None:
        if (vm := op.state.get(op.parent_id)) is not None:
            require_running(vm)
        source = op.inputs.get("source") or {}
        if not any(source.get(key) for key in ("script", "scriptUri", "commandId", "galleryScriptReferenceId")):
            raise bad_request("InvalidParameter", "Required parameter 'source' is missing: give a script or its URI.")
        beside = [one for one in op.state.of_type(KIND) if one.id.lower().startswith(f"{op.parent_id.lower()}/")]
        if op.kind is Operation.CREATE and len(beside) >= MOST_ON_A_VM:
            raise conflict(
                "OperationNotAllowed",
                f"The maximum number of managed Run commands (max={MOST_ON_A_VM}, current={len(beside)}) has been "
                "exceeded. Use fewer Run commands and retry the request.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["instanceView"] = deepcopy(self._last_run(op)) or _view(op)

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        view, fault = resource.properties["instanceView"], op.run_command
        if self._last_run(op) is not None:
            fault = None
        elif (vm := op.state.get(op.parent_id)) is not None:
            remember(vm, op.name, _settings(op), view)
        if op.inputs.get("asyncExecution"):
            return None
        if view["executionState"] == "Running":
            return ArmError(
                200,
                "VMExtensionProvisioningTimeout",
                f"Provisioning of VM extension {op.name} has timed out. Extension provisioning has taken too long to "
                f"complete. The extension did not report a message. {_HELP}",
            )
        if view["executionState"] != "Failed" or not op.inputs.get("treatFailureAsDeploymentFailure"):
            return None
        reported = fault.message if fault is not None and fault.message else _as_json(view)
        return ArmError(
            200,
            "VMExtensionProvisioningError",
            f"VM has reported a failure when processing extension '{op.name}' (publisher 'Microsoft.CPlat.Core' and "
            f"type 'RunCommandHandlerLinux'). Error message: '{reported}'. {_HELP}",
        )

    def _last_run(self, op: Op) -> dict[str, Any] | None:
        """How the last run under this name on this VM ended, if its settings were these."""
        vm = op.state.get(op.parent_id)
        return last_run(vm, op.name, _settings(op)) if vm is not None else None


def require_running(vm: Resource) -> None:
    """Commands reach a VM that runs.

    Raises:
        ArmError: this one does not.
    """
    if vm.notes.get("power", "running") != "running":
        raise conflict(
            "OperationNotAllowed", f"Cannot modify extensions in the VM when the VM is not running. VM: {vm.id}."
        )


def last_run(vm: Resource, name: str, settings: str) -> dict[str, Any] | None:
    """How the last run under this name on this VM ended, if its settings (a digest) were these."""
    last = vm.notes.get(_RUNS, {}).get(name)
    return last["view"] if last is not None and last["settings"] == settings else None


def remember(vm: Resource, name: str, settings: str, view: Mapping[str, Any]) -> None:
    """A run that began: with equal settings it is not run again."""
    vm.notes.setdefault(_RUNS, {})[name] = {"settings": settings, "view": deepcopy(dict(view))}


def _settings(op: Op) -> str:
    return op.digest({key: value for key, value in op.inputs.items() if key not in _NOT_SETTINGS})


def _view(op: Op) -> dict[str, Any]:
    """What the handler reports of a run."""
    fault = op.run_command
    script = str(dig(op.inputs, "source.script", "")).encode()
    short, vm = hashlib.sha256(script).hexdigest()[:12], op.parent_id.rsplit("/", 1)[-1]
    said = [f"simulated: a script of {len(script)} bytes (sha256 {short}) was not really run on {vm}"]
    if fault is None:
        return {
            "executionState": "Succeeded",
            "executionMessage": "Execution completed",
            "output": _tail("\n".join([*said, "simulated: it ended well"])),
            "error": "",
            "exitCode": 0,
            "startTime": op.timestamp,
            "endTime": op.timestamp,
        }
    code = _exit_code(fault, int(op.inputs.get("timeoutInSeconds") or 0))
    *log, sentence = fault.log_tail or ("",)
    return {
        "executionState": "Running" if code is None else "Failed",
        "executionMessage": (
            "Execution in progress" if code is None else f"Execution failed: command terminated with exit status={code}"
        ),
        "output": _tail("\n".join([*said, *log])),
        "error": _tail(sentence if code == fault.exit_code else ""),
        "exitCode": code or 0,
        "startTime": op.timestamp,
        "endTime": "" if code is None else op.timestamp,
    }


def _exit_code(fault: RunCommandFault, allowed_s: int) -> int | None:
    """None while the script still runs when the deployment ends; -1 where the handler has killed it."""
    ends_s = min(fault.takes_s, allowed_s) if allowed_s else fault.takes_s
    if ends_s > DEPLOYMENT_LIMIT_S:
        return None
    return fault.exit_code if ends_s == fault.takes_s else -1


def _tail(text: str) -> str:
    """The end of a stream; the cut may go through a character, of which the handler's JSON makes U+FFFD."""
    return text.encode()[-TAIL_BYTES:].decode(errors="replace")


def _as_json(view: Mapping[str, Any]) -> str:
    """The view as the error shows it; a text that holds a secret was not kept."""
    texts = {key: UNKNOWN_TEXT if isinstance(it, Mapping) and MARK in it else it for key, it in view.items()}
    return json.dumps(texts, separators=(",", ":"), ensure_ascii=False)
