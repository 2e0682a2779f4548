"""The profiles of a VM (OS, image, security): what is required, what is frozen, what Azure fills in."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from simulator.azure.errors import bad_request, conflict
from simulator.azure.rules.base import Op
from simulator.azure.state.redaction import digest
from simulator.plugin.values import dig, fill

# Properties an update may repeat but not change, and the name Azure uses in the refusal.
FROZEN: Final = {
    "osProfile.adminUsername": "osProfile.adminUsername",
    "osProfile.computerName": "osProfile.computerName",
    "osProfile.linuxConfiguration.ssh": "osProfile.linuxConfiguration.ssh.publicKeys",
    "osProfile.linuxConfiguration.disablePasswordAuthentication": "linuxConfiguration.disablePasswordAuthentication",
    "storageProfile.imageReference.publisher": "imageReference.publisher",
    "storageProfile.imageReference.offer": "imageReference.offer",
    "storageProfile.imageReference.sku": "imageReference.sku",
    "storageProfile.imageReference.version": "imageReference.version",
    "storageProfile.imageReference.id": "imageReference.id",
    "storageProfile.osDisk.name": "osDisk.name",
    "storageProfile.osDisk.createOption": "osDisk.createOption",
    "storageProfile.osDisk.osType": "osDisk.osType",
    "storageProfile.osDisk.diffDiskSettings": "osDisk.diffDiskSettings",
    "storageProfile.osDisk.managedDisk.securityProfile": "osDisk.managedDisk.securityProfile",
    "storageProfile.diskControllerType": "storageProfile.diskControllerType",
    "zones": "zones",
    "securityProfile.securityType": "securityProfile.securityType",
    "priority": "priority",
    "availabilitySet.id": "availabilitySet.id",
    "proximityPlacementGroup.id": "proximityPlacementGroup.id",
    "plan": "plan",
}
# Write-only properties: compared by digest, since a GET does not show them.
WRITE_ONLY: Final = ("osProfile.customData", "osProfile.adminPassword")
CUSTOM_DATA_BYTES: Final = 65535
# The names Azure refuses (the list in the SDK's own documentation of `adminUsername`).
_RESERVED_USERS: Final = frozenset(
    (
        *("administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1", "123", "a"),
        *("actuser", "adm", "admin2", "aspnet", "backup", "console", "david", "guest", "john", "owner", "root"),
        *("server", "sql", "support", "support_388945a0", "sys", "test2", "test3", "user4", "user5"),
    )
)
_IMAGE_GIB: Final = {"ubuntu-hpc": 64}
_DEFAULT_IMAGE_GIB: Final = 30


def require(op: Op) -> None:
    """The profiles of a new VM make sense.

    Raises:
        ArmError: InvalidParameter and its relatives.
    """
    profile = op.inputs.get("osProfile") or {}
    _require_user(profile)
    _require_custom_data(profile.get("customData"))
    if op.inputs.get("userData"):
        _require_custom_data(op.inputs["userData"])
    zones = op.inputs.get("zones") or []
    if len(zones) > 1 or any(zone not in {"1", "2", "3"} for zone in zones):
        raise bad_request("InvalidParameter", f"The zone(s) '{', '.join(zones)}' are not supported in '{op.location}'.")
    spot = op.inputs.get("priority") == "Spot"
    if not spot and (op.inputs.get("evictionPolicy") or op.inputs.get("billingProfile")):
        raise bad_request(
            "InvalidParameter", "Eviction policy and billing profile can be set only on Azure Spot Virtual Machines."
        )
    if spot and op.inputs.get("availabilitySet"):
        raise conflict("OperationNotAllowed", "Azure Spot Virtual Machines cannot be placed in an availability set.")
    security = op.inputs.get("securityProfile") or {}
    if security.get("uefiSettings") and security.get("securityType") not in {"TrustedLaunch", "ConfidentialVM"}:
        raise bad_request(
            "BadRequest", "Use of UefiSettings is not supported for a VM without securityType TrustedLaunch."
        )
    _require_image(op)


def _require_user(profile: Mapping[str, Any]) -> None:
    user = profile.get("adminUsername")
    if not profile:
        return
    if not profile.get("computerName"):
        raise bad_request("InvalidParameter", "Required parameter 'osProfile.computerName' is missing (null).")
    if not user:
        raise bad_request("InvalidParameter", "Required parameter 'osProfile.adminUsername' is missing (null).")
    if str(user).lower() in _RESERVED_USERS or not 1 <= len(str(user)) <= 64:
        raise bad_request("InvalidParameter", "The Admin Username specified is not allowed.")
    if len(str(profile["computerName"])) > 64:
        raise bad_request("InvalidParameter", "Linux host name cannot exceed 64 characters in length.")
    linux = profile.get("linuxConfiguration") or {}
    keys = dig(linux, "ssh.publicKeys", []) or []
    if not keys and not profile.get("adminPassword"):
        raise bad_request(
            "InvalidParameter",
            "Authentication using either SSH or by user name and password must be enabled in Linux profile.",
        )
    home = f"/home/{user}/.ssh/authorized_keys"
    for key in keys:
        if key.get("path") != home:
            raise bad_request(
                "InvalidParameter",
                f"Destination path for SSH public keys is currently limited to its default value {home} due to a known "
                "issue in Linux provisioning agent.",
            )


def _require_custom_data(data: Any) -> None:
    if data is None:
        return
    try:
        size = len(base64.b64decode(str(data), validate=True))
    except (binascii.Error, ValueError):
        size = CUSTOM_DATA_BYTES + 1
    if size > CUSTOM_DATA_BYTES:
        raise bad_request(
            "InvalidParameter",
            "Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.",
        )


def _require_image(op: Op) -> None:
    image = dig(op.inputs, "storageProfile.imageReference", {}) or {}
    os_disk = dig(op.inputs, "storageProfile.osDisk", {}) or {}
    if os_disk.get("createOption") == "FromImage" and not image:
        raise bad_request("InvalidParameter", "Required parameter 'imageReference' is missing (null).")
    size, least = os_disk.get("diskSizeGB"), image_gib(image)
    if size is not None and image and size < least:
        raise conflict(
            "OperationNotAllowed",
            f"The specified disk size {size} GB is smaller than the size of the corresponding disk in the VM image: "
            f"{least} GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.",
        )


def require_unchanged(op: Op, before: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    """An update that Azure refuses: Pulumi shows it as an update all the same.

    Raises:
        ArmError: 409 PropertyChangeNotAllowed, naming the property and never its value.
    """
    for path in WRITE_ONLY:
        value = dig(op.inputs, path)
        if value is not None and digest(op.state.salt, value) != notes.get(path):
            _refuse(path)
    for path, target in FROZEN.items():
        after = dig(op.inputs, path)
        if after is not None:
            # Secret properties are not kept in plain text: compare digests where there is one.
            same = (
                digest(op.state.salt, _fold(after)) == notes[path]
                if path in notes
                else _same(after, dig(before, path), path)
            )
            if not same:
                _refuse(target)
        # An absent value is "no opinion", except where the VM would lose its placement.
        elif path == "zones" and before.get("zones"):
            _refuse(target)


def _fold(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _same(after: Any, before: Any, path: str) -> bool:
    if before is None and path in {"priority", "securityProfile.securityType", "storageProfile.diskControllerType"}:
        return after in {"Regular", "Standard", "SCSI"}
    return bool(_fold(after) == _fold(before))


def _refuse(target: str) -> None:
    raise conflict("PropertyChangeNotAllowed", f"Changing property '{target}' is not allowed.")


def digests(op: Op) -> dict[str, str]:
    """Digests of what an update may not change, for the next update."""
    values = {path: dig(op.inputs, path) for path in WRITE_ONLY}
    values |= {path: _fold(dig(op.inputs, path)) for path in FROZEN}
    return {path: digest(op.state.salt, value) for path, value in values.items() if value is not None}


def image_gib(image: Mapping[str, Any]) -> int:
    """Size of an image's OS disk in GiB (docs/facts/azure.md#gpu-image)."""
    return _IMAGE_GIB.get(str(image.get("offer", "")).lower(), _DEFAULT_IMAGE_GIB)


def fill_profile(op: Op, outputs: dict[str, Any]) -> None:
    """Defaults of the OS profile, and the image version `latest` stands for."""
    if outputs.get("osProfile"):
        fill(
            outputs["osProfile"], {"allowExtensionOperations": True, "requireGuestProvisionSignal": True, "secrets": []}
        )
        if "windowsConfiguration" not in outputs["osProfile"]:
            fill(
                outputs["osProfile"],
                {
                    "linuxConfiguration": {
                        "disablePasswordAuthentication": False,
                        "provisionVMAgent": True,
                        "patchSettings": {"patchMode": "ImageDefault", "assessmentMode": "ImageDefault"},
                        "enableVMAgentPlatformUpdates": False,
                    }
                },
            )
    image = dig(outputs, "storageProfile.imageReference")
    if image and not image.get("id"):
        version = str(image.get("version", "latest"))
        stamp = int(hashlib.sha256(repr(sorted(image.items())).encode()).hexdigest()[:4], 16)
        kept = dig(op.old.properties if op.old else {}, "storageProfile.imageReference.exactVersion")
        image["exactVersion"] = kept or (f"22.04.2026.{stamp}" if version == "latest" else version)
