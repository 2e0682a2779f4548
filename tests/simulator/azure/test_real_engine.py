"""The provider under the real Pulumi engine: a node's life in one small program."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi import automation
from pulumi_azure_native import compute, network, resources

from infra import engine
from simulator.azure.state.store import State, Store
from tests.simulator.azure import builders as b

CANARY = "CANARY-engine-secret"
IN_ONE_STEP = pulumi.ResourceOptions(
    replace_on_changes=["osProfile", "storageProfile.imageReference", "zones"], delete_before_replace=True
)


@dataclass
class Program:
    """What the stack shall be; tests change it between operations."""

    custom_data: str = "I2Nsb3VkLWNvbmZpZwo="
    vm_options: pulumi.ResourceOptions = field(default_factory=lambda: IN_ONE_STEP)
    script: str = "echo apply"

    def run(self) -> None:
        """The Pulumi program."""
        group = resources.ResourceGroup("group", resource_group_name=b.GROUP)
        vnet = network.VirtualNetwork(
            "vnet",
            resource_group_name=group.name,
            virtual_network_name="vnet",
            address_space={"address_prefixes": ["10.0.0.0/16"]},
            subnets=[{"name": "nodes", "address_prefix": "10.0.0.0/24"}],
        )
        nic = network.NetworkInterface(
            "nic",
            resource_group_name=group.name,
            ip_configurations=[
                {"name": "primary", "subnet": {"id": vnet.id.apply(lambda id_: f"{id_}/subnets/nodes")}}
            ],
        )
        body = b.vm_inputs("")
        vm = compute.VirtualMachine(
            "vm",
            resource_group_name=group.name,
            vm_name="node-1",
            hardware_profile=body["hardwareProfile"],
            network_profile={"network_interfaces": [{"id": nic.id, "primary": True}]},
            os_profile={**body["osProfile"], "customData": pulumi.Output.secret(self.custom_data)},
            storage_profile=body["storageProfile"],
            opts=self.vm_options,
        )
        apply = compute.VirtualMachineRunCommandByVirtualMachine(
            "apply",
            resource_group_name=group.name,
            vm_name=vm.name,
            run_command_name="apply",
            source={"script": pulumi.Output.secret(f"{self.script} # {CANARY}")},
            treat_failure_as_deployment_failure=True,
        )
        pulumi.export("nic", nic.name)
        pulumi.export("vm", vm.vm_id)
        pulumi.export("exit", apply.instance_view.apply(lambda view: view.exit_code))


@dataclass
class Stack:
    stack: automation.Stack
    program: Program
    state_file: Path
    screen: list[str] = field(default_factory=list)

    def up(self) -> automation.UpResult:
        return self.stack.up(on_output=self.screen.append)

    def changes(self) -> dict[str, int]:
        summary = self.stack.preview(on_output=self.screen.append).change_summary
        return {str(kind): count for kind, count in summary.items() if kind != "same"}

    def faults(self, text: str) -> None:
        self.stack.workspace.env_vars = {**self.stack.workspace.env_vars, "AZURE_SIMULATOR_FAULTS": text}

    @property
    def azure(self) -> State:
        return Store(self.state_file).read()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("engine")
    found = engine.locate()
    environment = found.offline_environment(folder / "home")
    plugins = Path(__file__).parents[3] / "simulator" / "azure" / "bin"
    environment["PATH"] = os.pathsep.join([str(plugins), environment["PATH"]])
    environment["AZURE_SIMULATOR_STATE"] = str(folder / "azure.json")
    before = os.environ["PATH"]
    os.environ["PATH"] = environment["PATH"]
    program = Program()
    made = automation.create_or_select_stack(
        "dev", "simulator-test", program.run, opts=automation.LocalWorkspaceOptions(env_vars=environment)
    )
    made.set_config("azure-native:location", automation.ConfigValue("eastus"))
    yield Stack(made, program, folder / "azure.json")
    os.environ["PATH"] = before


def outputs(result: automation.UpResult) -> dict[str, Any]:
    return {name: output.value for name, output in result.outputs.items()}


def test_a_failing_node_is_kept_and_the_next_up_updates_it(stack):
    stack.faults("{faults: [{kind: run_command, times: 1}]}")
    with pytest.raises(automation.CommandError, match=r"\[simulated\].*VMExtensionProvisioningError") as caught:
        stack.up()
    assert CANARY not in str(caught.value)
    assert len(stack.azure.of_type("compute:VirtualMachine")) == 1
    with pytest.raises(automation.CommandError, match=r"VMExtensionProvisioningError"):
        stack.up()  # the engine updates what failed, and Azure runs nothing twice
    stack.program.script = "echo apply again"
    result = stack.up()
    assert result.summary.resource_changes == {"same": 5, "update": 1}
    assert outputs(result)["exit"] == 0
    name = outputs(result)["nic"]
    assert name.startswith("nic") and int(name.removeprefix("nic"), 16) >= 0 and len(name) == 11


def test_nothing_to_do_before_and_after_a_refresh(stack):
    assert stack.changes() == {}
    stack.stack.refresh(on_output=stack.screen.append)
    assert stack.changes() == {}


def test_cloud_init_without_the_options_previews_as_update_and_is_refused(stack):
    stack.program.vm_options, stack.program.custom_data = pulumi.ResourceOptions(), "I2Nsb3VkLWNvbmZpZwojMgo="
    assert stack.changes() == {"update": 1}
    with pytest.raises(automation.CommandError, match=r"Changing property 'osProfile.customData' is not allowed"):
        stack.up()


def test_replace_without_delete_first_collides(stack):
    stack.program.vm_options = pulumi.ResourceOptions(replace_on_changes=["osProfile"])
    with pytest.raises(automation.CommandError, match=r"cannot create already existing resource"):
        stack.up()


def test_with_the_options_the_vm_is_replaced_delete_first(stack):
    stack.program.vm_options = IN_ONE_STEP
    before = stack.azure.of_type("compute:VirtualMachine")[0].properties["vmId"]
    nic = stack.azure.of_type("network:NetworkInterface")[0]
    after = outputs(stack.up())["vm"]
    assert after != before
    assert stack.azure.get(nic.id).created == nic.created


def test_destroy_leaves_nothing_and_no_secret_was_written(stack):
    stack.stack.destroy(on_output=stack.screen.append)
    assert stack.azure.resources == {}
    assert CANARY not in stack.state_file.read_text()
    assert not any(CANARY in line for line in stack.screen)
    assert any("azure-native is simulated" in line for line in stack.screen)
