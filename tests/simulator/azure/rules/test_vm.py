"""Virtual machines: what Azure refuses, what may change, what stays behind."""

import base64

import pytest

from tests.simulator.azure import builders as b
from tests.simulator.azure.builders import merged
from tests.simulator.azure.engine import RefusedError


@pytest.fixture
def ground(azure):
    b.group(azure)
    network = b.vnet(azure)
    return azure, network


# --- VMs: what Azure refuses to change


@pytest.mark.parametrize(
    ("path", "value", "target"),
    [
        ("osProfile.customData", base64.b64encode(b"#cloud-config\nx: 1\n").decode(), "osProfile.customData"),
        ("osProfile.adminUsername", "other", "osProfile.adminUsername"),
        ("osProfile.computerName", "other", "osProfile.computerName"),
        (
            "osProfile.linuxConfiguration.ssh",
            {"publicKeys": [{"path": "/home/huddle/.ssh/authorized_keys", "keyData": "ssh-ed25519 BBBB"}]},
            "osProfile.linuxConfiguration.ssh.publicKeys",
        ),
        ("storageProfile.imageReference.version", "22.04.2027010101", "imageReference.version"),
        ("storageProfile.osDisk.name", "other-os", "osDisk.name"),
        ("storageProfile.diskControllerType", "NVMe", "storageProfile.diskControllerType"),
        ("zones", ["2"], "zones"),
        ("securityProfile", {"securityType": "TrustedLaunch"}, "securityProfile.securityType"),
        ("priority", "Spot", "priority"),
    ],
)
def test_property_change_not_allowed(azure, path, value, target):
    vm = b.node(azure)
    with pytest.raises(
        RefusedError, match=rf'Status=409 Code="PropertyChangeNotAllowed".*Changing property \'{target}\''
    ):
        azure.update(vm, merged(vm.inputs, path, value))


def test_changes_in_place(ground):
    azure, network = ground
    disk = b.disk(azure)
    vm = b.vm(azure, b.nic(azure, network))
    same_id = vm.outputs["vmId"]
    inputs = merged(vm.inputs, "storageProfile.dataDisks", [b.data_disk(disk)])
    inputs = merged(inputs, "hardwareProfile.vmSize", "Standard_NC80adis_H100_v5")
    after = azure.update(
        vm, {**inputs, "tags": {"a": "b"}, "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}}}
    )
    assert after.outputs["vmId"] == same_id
    assert after.outputs["storageProfile"]["dataDisks"][0]["diskSizeGB"] == 1024


def test_an_absent_write_only_value_is_no_change(azure):
    vm = b.node(azure)
    profile = {key: value for key, value in vm.inputs["osProfile"].items() if key != "customData"}
    assert azure.change(vm, osProfile=profile).id == vm.id


def test_nics_of_a_running_vm_stay(ground):
    azure, network = ground
    vm = b.vm(azure, b.nic(azure, network))
    other = b.nic(azure, network, "nic-2")
    nics = {"networkInterfaces": [{"id": other.id, "primary": True}]}
    with pytest.raises(RefusedError, match=r"AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported"):
        azure.change(vm, networkProfile=nics)


# --- VMs: what Azure refuses to create


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("hardwareProfile.vmSize", "Huge", "InvalidParameter.*'Huge'"),
        ("networkProfile.networkInterfaces", [], "networkInterfaces' is missing"),
        ("osProfile.adminUsername", "admin", "The Admin Username specified is not allowed"),
        ("osProfile.customData", "not base64!", "Custom data in OSProfile must be in Base64 encoding"),
        ("osProfile.customData", base64.b64encode(b"x" * 65536).decode(), "maximum length of 87380 characters"),
        ("osProfile.computerName", "n" * 65, "Linux host name cannot exceed 64"),
        (
            "osProfile.linuxConfiguration.ssh.publicKeys",
            [{"path": "/root/.ssh/authorized_keys", "keyData": "k"}],
            "limited to its default value /home/huddle/.ssh/authorized_keys",
        ),
        ("osProfile.linuxConfiguration.ssh.publicKeys", [], "Authentication using either SSH"),
        ("storageProfile.osDisk.diskSizeGB", 32, "specified disk size 32 GB is smaller.*64 GB"),
        ("storageProfile.osDisk.managedDisk.storageAccountType", "PremiumV2_LRS", "not supported for the OS disk"),
        ("zones", ["7"], "zone"),
        ("evictionPolicy", "Deallocate", "only on Azure Spot"),
        ("securityProfile", {"uefiSettings": {"secureBootEnabled": False}}, "UefiSettings is not supported"),
        (
            "capacityReservation",
            {"capacityReservationGroup": {"id": "/subscriptions/9/resourceGroups/g/providers/x/y/z"}},
            "capacity reservation is not available",
        ),
    ],
)
def test_a_vm_that_makes_no_sense(ground, path, value, words):
    azure, network = ground
    nic = b.nic(azure, network)
    with pytest.raises(RefusedError, match=words):
        azure.create("compute:VirtualMachine", "node", merged(b.vm_inputs(nic.id), path, value))
    assert azure.state.of_type("compute:VirtualMachine") == []


def test_a_nic_serves_one_vm(ground):
    azure, network = ground
    nic = b.nic(azure, network)
    b.vm(azure, nic)
    with pytest.raises(RefusedError, match=r"NicInUse.*virtualMachines/node-1"):
        b.vm(azure, nic, "node-2")


def test_number_of_nics_and_the_primary_one(ground):
    azure, network = ground
    nics = [b.nic(azure, network, f"nic-{number}") for number in range(3)]
    body = b.vm_inputs(nics[0].id)
    body["networkProfile"] = {"networkInterfaces": [{"id": nic.id} for nic in nics]}
    with pytest.raises(RefusedError, match=r"network interfaces is 3 and the maximum allowed is 2"):
        azure.create("compute:VirtualMachine", "node", body)
    body["networkProfile"] = {"networkInterfaces": [{"id": nic.id} for nic in nics[:2]]}
    with pytest.raises(RefusedError, match=r"VirtualMachineMustHaveOneNetworkInterfaceAsPrimary"):
        azure.create("compute:VirtualMachine", "node", body)


def test_confidential_size_without_accelerated_networking(ground):
    azure, network = ground
    inputs = b.nic_inputs(f"{network.id}/subnets/nodes", enableAcceleratedNetworking=True)
    nic = azure.create("network:NetworkInterface", "nic", inputs)
    with pytest.raises(RefusedError, match=r"does not support accelerated networking"):
        azure.create(
            "compute:VirtualMachine",
            "node",
            merged(b.vm_inputs(nic.id), "hardwareProfile.vmSize", "Standard_NCC40ads_H100_v5"),
        )


# --- what a deleted VM leaves


def test_os_disk_goes_by_its_delete_option(ground):
    azure, network = ground
    nic = b.nic(azure, network)
    vm = b.vm(azure, nic)
    assert [disk.name for disk in azure.state.of_type("compute:Disk")] == ["node-1-os"]
    azure.delete(vm)
    assert azure.state.of_type("compute:Disk") == []
    assert azure.state.get(nic.id)


def test_a_detached_os_disk_stays_and_blocks_its_name(ground):
    azure, network = ground
    nic = b.nic(azure, network)
    body = merged(b.vm_inputs(nic.id), "storageProfile.osDisk.deleteOption", "Detach")
    azure.delete(azure.create("compute:VirtualMachine", "node", body))
    assert [disk.name for disk in azure.state.of_type("compute:Disk")] == ["node-1-os"]
    with pytest.raises(RefusedError, match=r"ConflictingUserInput.*'node-1-os' already exists.*CreateOption.Attach"):
        b.vm(azure, nic)


def test_replacing_needs_delete_first(ground):
    azure, network = ground
    nic = b.nic(azure, network)
    vm = b.vm(azure, nic)
    with pytest.raises(RefusedError, match=r"cannot create already existing resource"):
        b.vm(azure, nic)
    azure.delete(vm)
    again = b.vm(azure, nic)
    assert again.outputs["vmId"] != vm.outputs["vmId"]
