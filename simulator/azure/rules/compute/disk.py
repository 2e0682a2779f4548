"""Managed disks: sizes, performance, sharing.

Facts: docs/facts/azure.md#shared-disks, docs/facts/azure.md#disk-performance. Message
texts without a public sample are worded here; their codes are Azure's.
"""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource, State
from simulator.plugin.values import dig

FLEXIBLE: Final = frozenset({"PremiumV2_LRS", "UltraSSD_LRS"})
SHAREABLE: Final = FLEXIBLE | {"Premium_LRS", "Premium_ZRS", "StandardSSD_LRS", "StandardSSD_ZRS"}
# Regions that offer Premium SSD v2 outside zones (docs/facts/azure.md#premium-ssd-v2-zones).
WITHOUT_ZONES: Final = frozenset({"northcentralus", "westus", "westcentralus", "ukwest", "canadaeast"})


@dataclass(frozen=True)
class Tier:
    """A performance tier of Premium SSD: up to this many GiB."""

    name: str
    gib: int
    iops: int
    mbps: int
    max_shares: int


PREMIUM: Final = (
    Tier("P4", 32, 120, 25, 3),
    Tier("P6", 64, 240, 50, 3),
    Tier("P10", 128, 500, 100, 3),
    Tier("P15", 256, 1100, 125, 3),
    Tier("P20", 512, 2300, 150, 3),
    Tier("P30", 1024, 5000, 200, 5),
    Tier("P40", 2048, 7500, 250, 5),
    Tier("P50", 4096, 7500, 250, 5),
    Tier("P60", 8192, 16000, 500, 10),
    Tier("P70", 16384, 18000, 750, 10),
    Tier("P80", 32767, 20000, 900, 10),
)


def tier_of(size_gib: int) -> Tier:
    """The tier a Premium SSD of this size is billed and limited as."""
    return next((tier for tier in PREMIUM if size_gib <= tier.gib), PREMIUM[-1])


def max_shares(sku: str, size_gib: int) -> int:
    """How many VMs may attach a disk of this kind and size at most."""
    if sku not in SHAREABLE:
        return 1
    return 15 if sku in FLEXIBLE else tier_of(size_gib).max_shares


def attached_to(state: State, disk_id: str) -> list[Resource]:
    """VMs that have the disk."""
    wanted = disk_id.lower()
    return [
        vm
        for vm in state.of_type("compute:VirtualMachine")
        if any(
            str(dig(disk, "managedDisk.id", "")).lower() == wanted
            for disk in [dig(vm.properties, "storageProfile.osDisk", {}), *_data_disks(vm)]
        )
    ]


def _data_disks(vm: Resource) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dig(vm.properties, "storageProfile.dataDisks", []) or []
    return found


def lock_of(disk_id: str) -> str:
    """The key under which operations on one disk exclude each other."""
    return f"disk:{disk_id.lower()}"


def disk_busy(key: str) -> ArmError:
    """What two VMs get that attach one disk at the same time (MicrosoftDocs/azure-docs#108246)."""
    return conflict(
        "OperationNotAllowed", f"Resource is being used by another operation. Resource: {key.removeprefix('disk:')}."
    )


def refresh_attachment(state: State, disk: Resource) -> None:
    """What a disk says about its VMs."""
    vms = attached_to(state, disk.id)
    disk.properties["diskState"] = "Attached" if vms else "Unattached"
    disk.properties.pop("managedBy", None)
    disk.properties.pop("managedByExtended", None)
    if vms:
        disk.properties["managedBy"] = vms[0].id
        if disk.properties.get("maxShares", 1) > 1:
            disk.properties["managedByExtended"] = [vm.id for vm in vms]


@imitates("compute:Disk")
class Disk(Rules):
    """Microsoft.Compute/disks."""

    defaults: ClassVar[dict[str, Any]] = {
        "sku": {"name": "Standard_LRS"},
        "encryption": {"type": "EncryptionAtRestWithPlatformKey"},
        "networkAccessPolicy": "AllowAll",
        "publicNetworkAccess": "Enabled",
    }
    typical_seconds = 3.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (lock_of(op.id),)

    def busy(self, op: Op, key: str) -> ArmError:
        return disk_busy(key)

    def create(self, op: Op) -> None:
        self._require_shape(op)

    def update(self, op: Op) -> None:
        self._require_shape(op)
        before = op.old.properties if op.old else {}
        attached = attached_to(op.state, op.id)
        if op.inputs.get("diskSizeGB", 0) < before.get("diskSizeGB", 0):
            raise bad_request(
                "ResizeDiskError", f"Disk '{op.name}' cannot be made smaller: {before['diskSizeGB']} GiB is its size."
            )
        for name in ("creationData.createOption", "zones"):
            if dig(op.inputs, name) != dig(before, name):
                raise conflict("PropertyChangeNotAllowed", f"Changing property '{name}' is not allowed.")
        if not attached:
            return
        shared = before.get("maxShares", 1) > 1
        changes = {
            "maxShares": op.inputs.get("maxShares", 1) != before.get("maxShares", 1),
            "sku.name": dig(op.inputs, "sku.name", "Standard_LRS") != dig(before, "sku.name"),
            "diskSizeGB": shared and op.inputs.get("diskSizeGB") != before.get("diskSizeGB"),
        }
        for name, changed in changes.items():
            if changed:
                raise conflict(
                    "OperationNotAllowed",
                    f"Property '{name}' of disk '{op.name}' can only be changed while the disk is detached from all "
                    "VMs; "
                    f"it is attached to {', '.join(vm.id for vm in attached)}.",
                )

    def delete(self, op: Op) -> None:
        vms = attached_to(op.state, op.id)
        if vms:
            raise conflict("OperationNotAllowed", f"Disk {op.name} is attached to VM {vms[0].id}.")

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        size = int(outputs.get("diskSizeGB", 0))
        sku = dig(outputs, "sku.name")
        outputs["sku"]["tier"] = sku.split("_")[0].replace("SSD", "")
        outputs["diskSizeBytes"] = size * 1024**3
        outputs["uniqueId"] = derived(op.state.salt, op.id, str(op.old.created if op.old else op.now), "disk")
        outputs["diskState"] = "Unattached"
        outputs["timeCreated"] = op.old.properties["timeCreated"] if op.old else op.timestamp
        if sku in FLEXIBLE:
            outputs.setdefault("diskIOPSReadWrite", 3000)
            outputs.setdefault("diskMBpsReadWrite", 125)
        elif sku.startswith("Premium"):
            tier = tier_of(size)
            outputs.setdefault("tier", tier.name)
            outputs["diskIOPSReadWrite"], outputs["diskMBpsReadWrite"] = tier.iops, tier.mbps

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        refresh_attachment(op.state, resource)
        return None

    def _require_shape(self, op: Op) -> None:
        sku = dig(op.inputs, "sku.name", "Standard_LRS")
        size = op.inputs.get("diskSizeGB")
        if dig(op.inputs, "creationData.createOption") == "Empty" and size is None:
            raise bad_request("InvalidParameter", "Required parameter 'disk.diskSizeGB' is missing (null).")
        shares = op.inputs.get("maxShares", 1)
        ceiling = max_shares(sku, size or 0)
        if shares > ceiling:
            raise bad_request(
                "InvalidParameter",
                f"The value '{shares}' of parameter 'disk.maxShares' is out of range. The maximum for a disk of "
                f"{size} GiB "
                f"and sku '{sku}' is {ceiling}.",
            )
        if shares > 1 and op.inputs.get("burstingEnabled"):
            raise bad_request("InvalidParameter", "Parameter 'disk.burstingEnabled' is not allowed with maxShares > 1.")
        if sku in FLEXIBLE:
            self._require_performance(op, sku)
        elif op.inputs.get("diskIOPSReadWrite") or op.inputs.get("diskMBpsReadWrite"):
            raise bad_request("InvalidParameter", f"Parameter 'disk.diskIOPSReadWrite' is not allowed for sku '{sku}'.")

    def _require_performance(self, op: Op, sku: str) -> None:
        if not op.inputs.get("zones") and op.location not in WITHOUT_ZONES:
            raise bad_request(
                "InvalidParameter", f"A disk of sku '{sku}' must be created in an availability zone in '{op.location}'."
            )
        iops, mbps = op.inputs.get("diskIOPSReadWrite", 3000), op.inputs.get("diskMBpsReadWrite", 125)
        most = min(2000.0, max(125.0, iops / 4)) if sku == "PremiumV2_LRS" else 10000.0
        if not 3000 <= iops <= (80000 if sku == "PremiumV2_LRS" else 400000):
            raise bad_request(
                "InvalidParameter", f"The value '{iops}' of parameter 'disk.diskIOPSReadWrite' is out of range."
            )
        if not 125 <= mbps <= most:
            raise bad_request(
                "InvalidParameter",
                f"The value '{mbps}' of parameter 'disk.diskMBpsReadWrite' is out of range: 125 to {most:g} at {iops} "
                "IOPS.",
            )
