from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pulumi_azure_native import network

from components.gpu_node import REPLACING_CHANGES, GpuNode, GpuNodeArgs, Scripts
from plan.azure.model import AzurePlan
from simulator.azure.sdk import schema
from simulator.plugin.values import UNKNOWN
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recorded, Recording, run_program

NIC, VM, APPLY = (
    "network:NetworkInterface",
    "compute:VirtualMachine",
    "compute:VirtualMachineRunCommandByVirtualMachine",
)
SCHEDULE = "devtestlab:GlobalSchedule"
SUBNET_ID = arm_id("Microsoft.Network/virtualNetworks", "vnet") + "/subnets/nodes"
IDENTITY_ID = arm_id("Microsoft.ManagedIdentity/userAssignedIdentities", "nodes")
DISK_ID = arm_id("Microsoft.Compute/disks", "models")
CUSTOM_DATA = base64.b64encode(b"#cloud-config\n").decode()
DIGEST = "1a2b3c4d5e6f7081" * 4
SCRIPT, PREPARE = "#!/bin/bash\nexit 0\n", "#!/bin/bash\n# prepare\n"
SCRIPTS = Scripts(PREPARE, SCRIPT)
PARTS = {"package": "#!/bin/bash\n# package\n", "package-2": "#!/bin/bash\n# more\n", "installer": "#!/bin/bash\n"}


def needed() -> pulumi.Resource:
    """Stands for whatever the run command must wait for."""
    return network.RouteTable("needed", resource_group_name="group", route_table_name="needed")


def build(built: AzurePlan, preview: bool = False, *, disk: str | None = DISK_ID, **changes: Any) -> Recording:
    """All nodes of the plan, in a chain, as the Azure target makes them."""

    def program() -> Mapping[str, Any]:
        nodes: list[GpuNode] = []
        for node in built.nodes:
            args = {
                "scope": scope(built),
                "compute": built.compute,
                "node": node,
                "subnet_id": SUBNET_ID,
                "identity_id": IDENTITY_ID,
                "model_disk_id": disk,
                "model_disk_lun": built.store.lun,
                "custom_data": CUSTOM_DATA,
                "scripts": SCRIPTS,
                "part_scripts": PARTS,
                "bundle_digest": DIGEST,
                "vm_after": nodes[-1].vm if nodes else None,
                "prepare_after": [needed()] if not nodes else [],
                **changes,
            }
            nodes.append(GpuNode(node.name, GpuNodeArgs(**args)))
        return {
            "vm_ids": [node.vm_id for node in nodes],
            "addresses": [node.address for node in nodes],
            "status": [node.status for node in nodes],
        }

    return run_program(program, preview=preview)


@cache
def dev(preview: bool = False) -> Recording:
    return build(plan(), preview)


def vm(recording: Recording, number: int = 1) -> Recorded:
    return recording.one(VM, f"node-{number}-vm")


def test_the_interface_has_the_plans_address_and_nothing_public(preview: bool) -> None:
    recording = dev(preview)
    for node in plan().nodes:
        nic = recording.one(NIC, f"node-{node.number}-nic")
        assert nic["networkInterfaceName"] == f"huddleai-h100-node-{node.number}-nic"
        assert nic["enableAcceleratedNetworking"] is True
        assert len(nic["ipConfigurations"]) == 1
        assert nic["ipConfigurations.0.subnet.id"] == SUBNET_ID
        assert nic["ipConfigurations.0.privateIPAllocationMethod"] == "Static"
        assert nic["ipConfigurations.0.privateIPAddress"] == str(node.address)
        assert nic["ipConfigurations.0.publicIPAddress"] is None
    assert not recording.of("network:PublicIPAddress")


def test_the_vm_is_what_the_stack_file_asked_for(preview: bool) -> None:
    machine = vm(dev(preview))
    assert machine["vmName"] == "huddleai-h100-node-1"
    assert machine["hardwareProfile.vmSize"] == "Standard_NC40ads_H100_v5"
    assert machine["storageProfile.imageReference"] == {
        "publisher": "microsoft-dsvm",
        "offer": "ubuntu-hpc",
        "sku": "2404",
        "version": "24.04.2026072901",
    }
    assert machine["priority"] == "Regular"
    assert machine["evictionPolicy"] is None
    assert machine["billingProfile"] is None
    assert machine["zones"] is None
    assert machine["tags.environment"] == "dev"
    assert machine["diagnosticsProfile.bootDiagnostics"] == {"enabled": True}
    assert machine["identity.type"] == "UserAssigned"
    assert machine["identity.userAssignedIdentities"] == [IDENTITY_ID]


def test_nobody_logs_in_with_a_password_and_nothing_upgrades_itself() -> None:
    profile = vm(dev())["osProfile"]
    assert profile["computerName"] == "huddleai-h100-node-1"
    assert profile["adminUsername"] == "azureuser"
    assert profile["customData"] == CUSTOM_DATA
    assert "adminPassword" not in profile
    linux = profile["linuxConfiguration"]
    assert linux["disablePasswordAuthentication"] is True
    assert [key["path"] for key in linux["ssh"]["publicKeys"]] == ["/home/azureuser/.ssh/authorized_keys"]
    assert linux["ssh"]["publicKeys"][0]["keyData"].startswith("ssh-ed25519 ")
    assert linux["patchSettings"] == {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"}
    assert profile["allowExtensionOperations"] is True  # or no run command would ever start


def test_driver_modules_load_because_secure_boot_is_off_and_that_is_stated() -> None:
    standard = build(plan(nodes={"image": {"version": "24.04.2026072901", "security": "standard"}}))
    assert vm(standard)["securityProfile"] is None, "the word Standard needs a feature of the subscription"
    assert vm(dev())["securityProfile"] == {
        "securityType": "TrustedLaunch",
        "uefiSettings": {"secureBootEnabled": False, "vTpmEnabled": True},
    }


def test_the_os_disk_dies_with_its_vm_and_the_interface_does_not() -> None:
    machine = vm(dev(), 2)
    assert machine["storageProfile.osDisk"] == {
        "name": "huddleai-h100-node-2-os",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "caching": "ReadWrite",
        "diskSizeGB": 256,
        "managedDisk": {"storageAccountType": "Premium_LRS"},
    }
    assert machine["networkProfile.networkInterfaces"] == [
        {"id": dev().one(NIC, "node-2-nic").id, "primary": True, "deleteOption": "Detach"}
    ]


def test_the_model_disk_is_attached_without_cache_and_outlives_the_vm(preview: bool) -> None:
    assert vm(dev(preview))["storageProfile.dataDisks"] == [
        {
            "lun": 0,
            "createOption": "Attach",
            "deleteOption": "Detach",
            "caching": "None",
            "managedDisk": {"id": DISK_ID},
        }
    ]
    assert vm(build(plan(), disk=None))["storageProfile.dataDisks"] == []


def test_spot_zone_and_ultra_reach_the_vm() -> None:
    machine = vm(build(plan(nodes={"priority": "spot", "zone": "3"}, model_store={"sku": "UltraSSD_LRS"})))
    assert machine["priority"] == "Spot"
    assert machine["evictionPolicy"] == "Deallocate"
    assert machine["billingProfile"] == {"maxPrice": -1}
    assert machine["zones"] == ["3"]
    assert machine["additionalCapabilities"] == {"ultraSSDEnabled": True}
    assert vm(dev())["additionalCapabilities"] is None


def test_what_azure_takes_only_at_creation_replaces_the_vm_delete_first(preview: bool) -> None:
    for machine in dev(preview).of(VM):
        assert set(machine.replace_on_changes) == {
            "location",
            "zones",
            "priority",
            "osProfile",
            "securityProfile",
            "storageProfile.imageReference",
            "storageProfile.osDisk.name",
            "storageProfile.osDisk.diskSizeGB",
            "storageProfile.diskControllerType",
        }
        assert machine.delete_before_replace is True
        assert machine.timeouts == {"create": "60m", "update": "60m", "delete": "60m"}
        assert not machine.protect
        assert machine.ignore_changes == ()


@pytest.mark.parametrize("path", REPLACING_CHANGES)
def test_every_replacing_path_names_a_real_property(path: str) -> None:
    """A path that matches nothing is silently useless."""
    properties = schema.resource("azure-native:compute:VirtualMachine").inputs
    for step in path.split("."):
        assert step in properties, path
        kind = properties[step].type
        properties = schema.object_properties(kind) if isinstance(kind, schema.Obj) else {}


def test_what_updates_in_place_does_not_replace() -> None:
    for path in ("tags", "hardwareProfile.vmSize", "storageProfile.dataDisks", "identity", "networkProfile"):
        assert not any(path == listed or path.startswith(f"{listed}.") for listed in REPLACING_CHANGES)


def test_vms_that_share_a_disk_attach_it_one_after_the_other() -> None:
    recording = build(plan(nodes={"count": 3, "quota_vcpus": 120}))
    first, second, third = (vm(recording, number) for number in (1, 2, 3))
    assert recording.waits_for(second, first)
    assert recording.waits_for(third, second)
    assert not recording.waits_for(first, second)
    # By depends_on, not by an input: an input would drag the second VM into the first one's replacement.
    assert all(first.urn not in second.property_dependencies(name) for name in second.request.propertyDependencies)


def test_the_bundle_is_applied_as_root_and_a_failure_fails_the_deployment(preview: bool) -> None:
    command = dev(preview).one(APPLY, "node-1-apply")
    assert (command["vmName"], command["runCommandName"]) == ("huddleai-h100-node-1", "huddle-apply")
    assert command["source"] == {"script": SCRIPT}
    assert command["treatFailureAsDeploymentFailure"] is True
    assert command["asyncExecution"] is False
    assert command["timeoutInSeconds"] == 4500
    assert command.timeouts == {"create": "100m", "update": "100m", "delete": "20m"}
    assert command["tags.bundle"] == DIGEST
    for absent in ("runAsUser", "runAsPassword", "protectedParameters"):
        assert command[absent] is None


def test_the_secrets_version_is_part_of_what_runs_and_of_no_tag() -> None:
    recording = build(plan(), secrets_version="0a1b2c")
    apply, part = recording.one(APPLY, "node-1-apply"), recording.one(APPLY, "node-1-package")
    assert {one["name"]: one["value"] for one in apply["parameters"]} == {
        "HUDDLE_ATTEMPT": "1",
        "HUDDLE_SECRETS": "0a1b2c",
    }
    assert [one["name"] for one in part["parameters"]] == ["HUDDLE_ATTEMPT"], "a part holds nothing of a secret"
    assert "0a1b2c" not in str(apply["tags"])


def test_each_command_asks_for_its_own_last_run(preview: bool) -> None:
    asked = [arguments for token, arguments in dev(preview).calls if token == f"compute:get{APPLY.split(':')[1]}"]
    group = plan().names.resource_group
    assert {(one["resourceGroupName"], one["expand"]) for one in asked} == {(group, "instanceView")}
    commands = {f"huddle-{name}" for name in (*PARTS, "prepare", "apply")}
    nodes = {node.name for node in plan().nodes}
    assert {(one["vmName"], one["runCommandName"]) for one in asked} == set(product(nodes, commands))


def test_pulumi_waits_longer_than_a_script_may_run() -> None:
    for command in dev().of(APPLY):
        for operation in ("create", "update"):
            assert int(command.timeouts[operation].removesuffix("m")) * 60 > command["timeoutInSeconds"]


def test_each_piece_of_a_part_is_brought_beside_the_others_and_before_the_bundle(preview: bool) -> None:
    recording = dev(preview)
    prepare, machine = recording.one(APPLY, "node-1-prepare"), vm(recording)
    pieces = {name: recording.one(APPLY, f"node-1-{name}") for name in PARTS}
    for name, piece in pieces.items():
        assert (piece["vmName"], piece["runCommandName"]) == ("huddleai-h100-node-1", f"huddle-{name}")
        assert piece["source"] == {"script": PARTS[name]}
        assert piece["treatFailureAsDeploymentFailure"] is True
        assert piece.deleted_with == machine.urn
        assert piece.property_dependencies("tags") == {machine.urn}
        assert recording.waits_for(piece, machine)
        assert recording.waits_for(prepare, piece)
        assert not any(recording.waits_for(piece, other) for other in pieces.values())
        assert not recording.waits_for(piece, recording.one("network:RouteTable"))


def test_a_prompts_change_sends_the_bundle_and_no_part() -> None:
    """Azure runs a command again when its settings differ, tags apart; a part that is there need not come again."""
    other = Scripts("#!/bin/bash\n# another\n", "#!/bin/bash\n# its digest\n")
    after = build(plan(), scripts=other, bundle_digest="0" * 64)
    before = {one.urn: one.plain for one in dev().of(APPLY)}
    changed = [now.name for now in after.of(APPLY) if now.plain != before[now.urn]]
    assert set(changed) == {f"{node.name}-{name}" for node in plan().nodes for name in ("prepare", "apply")}


def test_the_command_waits_for_its_vm_and_for_what_the_script_needs() -> None:
    recording = dev()
    prepare, other = recording.one(APPLY, "node-1-prepare"), recording.one("network:RouteTable")
    assert recording.waits_for(prepare, vm(recording))
    assert recording.waits_for(prepare, other)
    assert recording.waits_for(recording.one(APPLY, "node-1-apply"), prepare)
    assert not recording.waits_for(vm(recording), other)


def test_a_new_vm_behind_the_same_name_runs_the_command_again(preview: bool) -> None:
    """With its VM where the engine knows how, else by an update: the tag differs and nothing in the path does."""
    recording = dev(preview)
    command, machine = recording.one(APPLY, "node-1-apply"), vm(recording)
    assert command["tags.vm-id"] == (UNKNOWN if preview else "00000003-0000-4000-8000-000000001687")
    assert command.property_dependencies("tags") == {machine.urn}
    for path_parameter in ("vmName", "runCommandName", "resourceGroupName"):
        assert not command.property_dependencies(path_parameter)
    assert command.replace_on_changes == ()
    assert command.deleted_with == machine.urn


def test_dev_nodes_are_deallocated_every_night(preview: bool) -> None:
    recording = dev(preview)
    schedule = recording.one(SCHEDULE, "node-1-shutdown")
    assert schedule["name"] == "shutdown-computevm-huddleai-h100-node-1"
    assert schedule["taskType"] == "ComputeVmShutdownTask"
    assert schedule["dailyRecurrence"] == {"time": "1900"}
    assert schedule["timeZoneId"] == "UTC"
    assert schedule["status"] == "Enabled"
    assert schedule["notificationSettings"] == {"status": "Disabled"}
    assert schedule["targetResourceId"] == (UNKNOWN if preview else vm(recording).id)
    assert len(recording.of(SCHEDULE)) == 2


def test_nodes_that_should_not_sleep_have_no_schedule() -> None:
    assert not build(plan(nodes={"auto_shutdown": {"enabled": False}})).of(SCHEDULE)


def test_outputs_are_the_vm_its_address_and_the_bundle_it_serves(preview: bool) -> None:
    exports = dev(preview).exports
    if preview:
        assert exports["vm_ids"] == exports["addresses"] == exports["status"] == UNKNOWN or all(
            value is UNKNOWN for key in ("vm_ids", "addresses", "status") for value in exports[key]
        )
        return
    assert exports["addresses"] == ["10.0.0.4", "10.0.0.5"]
    assert exports["status"] == ["Succeeded (1a2b3c4d5e6f)"] * 2
    assert exports["vm_ids"] == [machine.id for machine in (vm(dev(), 1), vm(dev(), 2))]


@settings(max_examples=5, deadline=None)
@given(digest=st.text("0123456789abcdef", min_size=64, max_size=64))
def test_a_new_bundle_touches_run_commands_only(digest: str) -> None:
    """Whatever the bundle, the VMs of a stack stay as they are: there may be no second GPU to get."""

    def others(recording: Recording) -> dict[str, dict[str, Any]]:
        return {item.urn: item.plain for item in recording.resources if item.type != f"azure-native:{APPLY}"}

    after = build(plan(), scripts=Scripts(f"#!/bin/bash\n# {digest}\n", SCRIPT), bundle_digest=digest)
    assert others(after) == others(dev())
    applied = [command for command in after.of(APPLY) if command.name.endswith("-apply")]
    assert [command["tags.bundle"] for command in applied] == [digest] * 2
