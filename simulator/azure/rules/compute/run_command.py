"""Managed run commands: the simulated node runs nothing, and says so.

A script succeeds unless a `run_command` fault applies. With `treatFailureAsDeploymentFailure` a failing script fails
the deployment after the resource exists, as in Azure: the engine keeps it and the next `up` runs it again.
"""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig

_MAX_TIMEOUT_S: Final = 5_400  # 90 minutes, the platform's limit for managed run commands


@imitates("compute:VirtualMachineRunCommandByVirtualMachine")
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
        vm = op.state.get(op.parent_id)
        if vm is not None and vm.notes.get("power", "running") != "running":
            raise conflict(
                "OperationNotAllowed",
                f"Cannot modify extensions in the VM when the VM is not running. VM: {vm.id}.",
            )
        source = op.inputs.get("source") or {}
        if not any(source.get(key) for key in ("script", "scriptUri", "commandId", "galleryScriptReferenceId")):
            raise bad_request("InvalidParameter", "Required parameter 'source' is missing: give a script or its URI.")
        if op.inputs.get("timeoutInSeconds", 0) > _MAX_TIMEOUT_S:
            raise bad_request(
                "InvalidParameter", f"The value of 'timeoutInSeconds' is out of range: at most {_MAX_TIMEOUT_S}."
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        fault = op.run_command
        script = str(dig(op.inputs, "source.script", ""))
        short = hashlib.sha256(script.encode()).hexdigest()[:12]
        vm = op.parent_id.rsplit("/", 1)[-1]
        lines = [f"simulated: a script of {len(script.encode())} bytes (sha256 {short}) was not really run on {vm}"]
        lines += fault.log_tail if fault else ("simulated: it ended well",)
        outputs["instanceView"] = {
            "executionState": "Failed" if fault else "Succeeded",
            "exitCode": fault.exit_code if fault else 0,
            "output": "\n".join(lines),
            "error": "" if not fault else lines[-1],
            "executionMessage": "" if not fault else f"command terminated with exit status={fault.exit_code}",
            "startTime": op.timestamp,
            "endTime": op.timestamp,
            "statuses": [],
        }

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        fault = op.run_command
        wanted = op.inputs.get("treatFailureAsDeploymentFailure") and not op.inputs.get("asyncExecution")
        if fault is None or not wanted:
            return None
        tail = fault.message or "\n".join(fault.log_tail)
        return ArmError(
            200,
            "VMExtensionProvisioningError",
            f"VM has reported a failure when processing extension '{op.name}' (publisher 'Microsoft.CPlat.Core' and "
            "type "
            "'RunCommandHandlerLinux'). Error message: 'Enable failed: failed to execute command: command terminated "
            f"with exit status={fault.exit_code}\n[stdout]\n{tail}\n'.",
        )
