"""Attaching data disks to a VM: LUNs, zones, caching, shares.

Facts: docs/facts/azure.md#shared-disks; texts of ConflictingUserInput and OperationNotAllowed as in public reports
(kubernetes-sigs/azuredisk-csi-driver #1378, MicrosoftDocs/azure-docs #108246).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.azure.errors import bad_request, conflict
from simulator.azure.rules.base import Op
from simulator.azure.rules.compute.disk import FLEXIBLE, attached_to
from simulator.azure.rules.compute.sizes import size_of
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig


def data_disks(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Data disks of a VM body."""
    found: list[dict[str, Any]] = dig(body, "storageProfile.dataDisks", []) or []
    return found


def managed_ids(body: Mapping[str, Any]) -> set[str]:
    """Ids of the managed data disks in a VM body."""
    ids = [dig(disk, "managedDisk.id") for disk in data_disks(body)]
    return {disk_id for disk_id in ids if isinstance(disk_id, str)}


def require(op: Op) -> None:
    """Every data disk of the request can be attached.

    Raises:
        ArmError: the first reason why not.
    """
    disks = data_disks(op.inputs)
    luns = [disk.get("lun") for disk in disks]
    doubled = next((lun for lun in luns if luns.count(lun) > 1), None)
    if doubled is not None:
        raise bad_request("InvalidParameter", f"A disk at LUN {doubled} already exists.")
    size = size_of(str(dig(op.inputs, "hardwareProfile.vmSize", "")))
    if size and len(disks) > size.max_data_disks:
        raise conflict(
            "OperationNotAllowed",
            f"The maximum number of data disks allowed to be attached to a VM of this size is {size.max_data_disks}.",
        )
    for entry in disks:
        disk = op.get(dig(entry, "managedDisk.id"))
        if disk is not None:
            _require_one(op, entry, disk)


def _require_one(op: Op, entry: Mapping[str, Any], disk: Resource) -> None:
    body = disk.properties
    sku = str(dig(body, "sku.name"))
    shares = int(body.get("maxShares") or 1)
    if disk.location != op.location:
        raise bad_request(
            "BadRequest", f"Disk {disk.id} in '{disk.location}' cannot be attached to a VM in '{op.location}'."
        )
    _require_zone(op, disk, sku)
    # ARM's default for Premium data disks is ReadOnly, so silence is a mistake too.
    caching = entry.get("caching") or ("ReadOnly" if sku.startswith("Premium_") else "None")
    if caching != "None" and (shares > 1 or sku in FLEXIBLE):
        kind = "a shared disk" if shares > 1 else f"sku '{sku}'"
        raise bad_request(
            "InvalidParameter",
            f"Disk caching '{caching}' is not supported for {kind}: '{disk.name}'. Set dataDisk.caching to 'None'.",
        )
    if shares > 1 and entry.get("writeAcceleratorEnabled"):
        raise bad_request("InvalidParameter", f"Write accelerator is not supported for a shared disk: '{disk.name}'.")
    others = [vm for vm in attached_to(op.state, disk.id) if vm.id.lower() != op.id.lower()]
    if others and shares == 1:
        raise conflict(
            "ConflictingUserInput",
            f"Cannot attach the disk {disk.name} to VM {op.id} because it is already attached to VM {others[0].id}. A "
            "disk "
            "can be attached to only one VM at a time.",
        )
    if len(others) >= shares:
        raise conflict(
            "OperationNotAllowed",
            f"Cannot attach the disk {disk.name} to VM {op.id}: it is attached to {len(others)} VMs and its maxShares "
            "is "
            f"{shares}.",
        )


def _require_zone(op: Op, disk: Resource, sku: str) -> None:
    vm_zones = op.inputs.get("zones") or []
    disk_zones = disk.properties.get("zones") or []
    if disk_zones and vm_zones and disk_zones != vm_zones:
        raise bad_request(
            "BadRequest",
            f"Disk {disk.name} cannot be attached to the VM because it is not in the same zone as the VM. VM zone: "
            f"'{vm_zones[0]}'. Disk zone: '{disk_zones[0]}'.",
        )
    if disk_zones and not vm_zones:
        raise bad_request(
            "BadRequest",
            f"Disk {disk.name} of sku '{sku}' is in zone '{disk_zones[0]}' and can only be attached to a VM in that "
            "zone; "
            f"VM {op.name} is not zonal.",
        )
    if not disk_zones and vm_zones and not sku.endswith("_ZRS"):
        raise bad_request(
            "BadRequest",
            f"Disk {disk.name} cannot be attached to the VM because it is not in zone '{vm_zones[0]}', where the VM "
            "is.",
        )
