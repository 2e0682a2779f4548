"""Virtual machines: what is refused at creation, what may not change, what stays behind.

Facts: docs/facts/azure.md#vm-changes-refused, docs/facts/azure.md#what-a-vm-leaves-behind,
docs/facts/azure.md#capacity-reservation, docs/facts/azure.md#spot.
"""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.faults import Operation
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.rules.compute import attach, quota, vm_profile
from simulator.azure.rules.compute.disk import disk_busy, lock_of, refresh_attachment
from simulator.azure.rules.compute.sizes import exists, size_of
from simulator.azure.rules.network import held
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource, State
from simulator.plugin.values import dig, fill

_NO_RESERVATION: Final = ("standard_nc40ads_h100", "standard_nc80adis_h100", "standard_nd")


@imitates("compute:VirtualMachine")
class VirtualMachine(Rules):
    """Microsoft.Compute/virtualMachines."""

    hidden = ("osProfile.adminPassword", "osProfile.customData", "userData")
    typical_seconds = 90.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        disks = attach.managed_ids(op.inputs) | attach.managed_ids(op.old.properties if op.old else {})
        return tuple(lock_of(disk_id) for disk_id in sorted(disks))

    def busy(self, op: Op, key: str) -> ArmError:
        return disk_busy(key)

    def create(self, op: Op) -> None:
        vm_profile.require(op)
        self._require_size(op)
        self._require_nics(op)
        self._require_os_disk(op)
        attach.require(op)
        quota.require(op)

    def update(self, op: Op) -> None:
        before = op.old.properties if op.old else {}
        vm_profile.require_unchanged(op, before, op.old.notes if op.old else {})
        self._require_size(op)
        self._require_same_nics(op, before)
        attach.require(op)
        if dig(before, "hardwareProfile.vmSize") != dig(op.inputs, "hardwareProfile.vmSize"):
            quota.require(op)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        born = str(op.old.created if op.old else op.now)
        outputs["vmId"] = str(uuid.UUID(derived(op.state.salt, op.id, born, "vm")))
        outputs["timeCreated"] = op.old.properties["timeCreated"] if op.old else op.timestamp
        outputs.setdefault("priority", "Regular") if op.inputs.get("priority") else None
        op.notes.update(vm_profile.digests(op))
        vm_profile.fill_profile(op, outputs)
        self._fill_disks(op, outputs, born)
        identity = outputs.get("identity")
        if identity:
            fill_identity(op, identity)

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        os_disk = dig(resource.properties, "storageProfile.osDisk")
        disk_id = dig(os_disk, "managedDisk.id")
        if disk_id and op.state.get(disk_id) is None:
            op.state.put(_os_disk(op, os_disk, disk_id))
        resource.notes.setdefault("power", "running")  # a change does not start a VM
        _sync(op.state, attach.managed_ids(resource.properties) | attach.managed_ids(op.old_inputs))
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        """`deleteOption` decides what goes along; the default, Detach, leaves it (and its bill)."""
        storage = resource.properties.get("storageProfile", {})
        for disk in [storage.get("osDisk", {}), *(storage.get("dataDisks") or [])]:
            disk_id = dig(disk, "managedDisk.id")
            if disk_id and disk.get("deleteOption", "Detach") == "Delete":
                op.state.remove(disk_id)
        for nic in dig(resource.properties, "networkProfile.networkInterfaces", []) or []:
            if nic.get("deleteOption") == "Delete":
                op.state.remove(nic["id"])
            elif (kept := op.state.get(nic["id"])) is not None:
                kept.properties.pop("virtualMachine", None)
                held.hold(op, [kept])
        _sync(op.state, attach.managed_ids(resource.properties))

    def refused(self, op: Op) -> None:
        if op.kind is Operation.CREATE:
            held.hold(op, held.of_vm(op, op.inputs))

    def _require_size(self, op: Op) -> None:
        name = str(dig(op.inputs, "hardwareProfile.vmSize", ""))
        if not exists(name):
            raise bad_request(
                "InvalidParameter", f"The value '{name}' provided for the VM size is not valid in '{op.location}'."
            )
        reserved = dig(op.inputs, "capacityReservation.capacityReservationGroup.id")
        if reserved and name.lower().startswith(_NO_RESERVATION):
            raise bad_request(
                "OperationNotAllowed", f"On-demand capacity reservation is not available for VM size '{name}'."
            )

    def _require_nics(self, op: Op) -> None:
        nics = dig(op.inputs, "networkProfile.networkInterfaces", []) or []
        if not nics:
            raise bad_request(
                "InvalidParameter", "Required parameter 'networkProfile.networkInterfaces' is missing (null)."
            )
        name = str(dig(op.inputs, "hardwareProfile.vmSize", ""))
        size = size_of(name)
        if size and len(nics) > size.max_nics:
            raise bad_request(
                "OperationNotAllowed",
                f"The number of network interfaces for virtual machine {op.name} exceeds the maximum allowed for the "
                f"virtual machine size {name}. The number of network interfaces is {len(nics)} and the maximum "
                "allowed is "
                f"{size.max_nics}.",
            )
        if len(nics) > 1 and sum(bool(nic.get("primary")) for nic in nics) != 1:
            raise bad_request(
                "VirtualMachineMustHaveOneNetworkInterfaceAsPrimary",
                f"Virtual machine {op.name} must have one network interface set as the primary.",
            )
        for entry in nics:
            self._require_nic(op, op.get(entry.get("id")), name)

    def _require_nic(self, op: Op, nic: Resource | None, size_name: str) -> None:
        if nic is None:
            return
        held.require_free(op, nic)
        if nic.location != op.location:
            raise bad_request(
                "InvalidResourceReference",
                f"Resource {nic.id} referenced by resource {op.id} was not found. Please make sure that the referenced "
                "resource exists, and that both resources are in the same region.",
            )
        size = size_of(size_name)
        if size and not size.accelerated_networking and nic.properties.get("enableAcceleratedNetworking"):
            raise bad_request(
                "VMSizeIsNotPermittedToEnableAcceleratedNetworkingForVmss",
                f"VM size {size_name} of virtual machine {op.name} does not support accelerated networking.",
            )
        for other in op.state.referrers(nic.id):
            if other.key == "compute:VirtualMachine" and other.id.lower() != op.id.lower():
                raise bad_request(
                    "NicInUse",
                    f"Network Interface {nic.id} is used by existing resource {other.id}. In order to attach it to "
                    f"{op.id}, it must be dissociated from the resource first.",
                )

    def _require_same_nics(self, op: Op, before: Mapping[str, Any]) -> None:
        def ids(body: Mapping[str, Any]) -> set[str]:
            return {str(nic.get("id")).lower() for nic in dig(body, "networkProfile.networkInterfaces", []) or []}

        if ids(before) != ids(op.inputs):
            raise conflict(
                "AddingOrDeletingNetworkInterfacesOnARunningVirtualMachineNotSupported",
                f"Adding or deleting network interfaces on a running virtual machine {op.name} is not supported. "
                "Deallocate it first.",
            )

    def _require_os_disk(self, op: Op) -> None:
        os_disk = dig(op.inputs, "storageProfile.osDisk", {}) or {}
        name = os_disk.get("name")
        disk_id = f"{op.id.split('/providers/')[0]}/providers/Microsoft.Compute/disks/{name}"
        if name and os_disk.get("createOption") == "FromImage" and op.state.get(disk_id) is not None:
            group = op.id.split("/resourceGroups/")[1].split("/")[0]
            raise conflict(
                "ConflictingUserInput",
                f"Disk '{name}' already exists in resource group '{group.upper()}'. Only CreateOption.Attach is "
                "supported.",
            )
        kind = dig(os_disk, "managedDisk.storageAccountType", "")
        if kind in {"PremiumV2_LRS", "UltraSSD_LRS"}:
            raise bad_request(
                "InvalidParameter", f"Managed disk storage account type '{kind}' is not supported for the OS disk."
            )

    def _fill_disks(self, op: Op, outputs: dict[str, Any], born: str) -> None:
        storage = outputs.setdefault("storageProfile", {})
        os_disk = storage.setdefault("osDisk", {})
        suffix = derived(op.state.salt, op.id, born, "osdisk")
        fill(os_disk, {"name": f"{op.name}_OsDisk_1_{suffix}", "caching": "ReadWrite", "deleteOption": "Detach"})
        fill(os_disk, {"osType": "Linux", "managedDisk": {"storageAccountType": "Premium_LRS"}})
        group = op.id.split("/providers/")[0]
        fill(
            os_disk["managedDisk"],
            {"id": f"{group}/providers/Microsoft.Compute/disks/{os_disk['name']}"},
        )
        fill(os_disk, {"diskSizeGB": vm_profile.image_gib(storage.get("imageReference") or {})})
        storage.setdefault("dataDisks", [])
        for entry in storage["dataDisks"]:
            disk = op.get(dig(entry, "managedDisk.id"))
            fill(entry, {"caching": "None", "deleteOption": "Detach", "toBeDetached": False})
            if disk is not None:
                fill(entry, {"name": disk.name, "diskSizeGB": disk.properties.get("diskSizeGB")})
                fill(entry["managedDisk"], {"storageAccountType": dig(disk.properties, "sku.name")})


def fill_identity(op: Op, identity: dict[str, Any]) -> None:
    """Principals of a resource's identities."""
    if "SystemAssigned" in str(identity.get("type")):
        identity["principalId"] = str(uuid.UUID(derived(op.state.salt, op.id, "principal")))
        identity["tenantId"] = op.tenant
    assigned = identity.get("userAssignedIdentities")
    names = assigned if isinstance(assigned, list) else list(assigned or {})
    if names:
        identity["userAssignedIdentities"] = {
            name: {
                "principalId": (owner.properties.get("principalId") if (owner := op.get(name)) else None),
                "clientId": (owner.properties.get("clientId") if owner else None),
            }
            for name in names
        }


def _os_disk(op: Op, os_disk: Mapping[str, Any], disk_id: str) -> Resource:
    sku = dig(os_disk, "managedDisk.storageAccountType")
    return Resource(
        id=disk_id,
        token="azure-native:compute:Disk",  # noqa: S106 - a type, not a password
        location=op.location,
        created=op.now,
        managed_by=op.id,
        properties={
            "name": os_disk["name"],
            "type": "Microsoft.Compute/disks",
            "location": op.location,
            "sku": {"name": sku, "tier": "Premium"},
            "diskSizeGB": os_disk["diskSizeGB"],
            "osType": os_disk["osType"],
            "creationData": {"createOption": "FromImage"},
            "provisioningState": "Succeeded",
        },
    )


def _sync(state: State, disk_ids: set[str]) -> None:
    for disk_id in disk_ids:
        disk = state.get(disk_id)
        if disk is not None:
            refresh_attachment(state, disk)
