"""Storage accounts and file shares (NFS)."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from typing import Any, ClassVar, Final

from simulator.azure.errors import bad_request, conflict
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.plugin.values import dig, fill

_PREMIUM_KINDS: Final = frozenset({"FileStorage", "BlockBlobStorage"})


@imitates("storage:StorageAccount")
class StorageAccount(Rules):
    """Microsoft.Storage/storageAccounts."""

    defaults: ClassVar[dict[str, Any]] = {
        "enableHttpsTrafficOnly": True,
        "minimumTlsVersion": "TLS1_0",
        "statusOfPrimary": "available",
        "privateEndpointConnections": [],
        "encryption": {"keySource": "Microsoft.Storage"},
        "networkRuleSet": {
            "bypass": "AzureServices",
            "defaultAction": "Allow",
            "ipRules": [],
            "virtualNetworkRules": [],
        },
    }
    typical_seconds = 20.0

    def create(self, op: Op) -> None:
        for other in op.state.of_type("storage:StorageAccount"):
            if other.name.lower() == op.name.lower() and other.id.lower() != op.id.lower():
                raise conflict("StorageAccountAlreadyTaken", f"The storage account named {op.name} is already taken.")
        self._require_kind(op)

    def update(self, op: Op) -> None:
        before = op.old.properties if op.old else {}
        if op.inputs["kind"] != before.get("kind"):
            raise conflict(
                "AccountPropertyCannotBeUpdated",
                "The property 'kind' was specified in the input, but it cannot be updated.",
            )
        self._require_kind(op)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        sku = str(dig(op.inputs, "sku.name"))
        outputs["sku"]["tier"] = sku.split("_", maxsplit=1)[0].removesuffix("V2")
        outputs["primaryLocation"] = op.location
        born = op.old.properties["creationTime"] if op.old else op.timestamp
        outputs["creationTime"] = born
        outputs["keyCreationTime"] = {"key1": born, "key2": born}
        services = ("file",) if op.inputs["kind"] == "FileStorage" else ("blob", "dfs", "file", "queue", "table", "web")
        outputs["primaryEndpoints"] = {
            service: f"https://{op.name}.{service}.core.windows.net/" for service in services
        }

    def _require_kind(self, op: Op) -> None:
        kind, sku = op.inputs["kind"], str(dig(op.inputs, "sku.name"))
        if (kind in _PREMIUM_KINDS) != sku.startswith("Premium") and not sku.startswith(("PremiumV2", "StandardV2")):
            raise bad_request("InvalidAccountKind", f"Account kind '{kind}' does not go with sku '{sku}'.")


@imitates("storage:FileShare")
class FileShare(Rules):
    """Microsoft.Storage/storageAccounts/fileServices/shares."""

    defaults: ClassVar[dict[str, Any]] = {
        "enabledProtocols": "SMB",
        "leaseStatus": "unlocked",
        "leaseState": "available",
    }
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        account = op.state.get(op.id.rsplit("/", 4)[0])
        premium = account is not None and account.properties.get("kind") == "FileStorage"
        if op.inputs.get("enabledProtocols") == "NFS" and not premium:
            raise bad_request(
                "NfsNotSupported", "NFS is not supported for the account: it needs kind FileStorage on SSD."
            )
        quota = op.inputs.get("shareQuota")
        flexible = account is not None and str(dig(account.properties, "sku.name")).startswith("PremiumV2")
        least = 32 if flexible else 100
        if premium and quota is not None and quota < least:
            raise bad_request(
                "InvalidShareQuota", f"The share quota {quota} is too small: at least {least} GiB on SSD."
            )
        if op.inputs.get("rootSquash") and op.inputs.get("enabledProtocols") != "NFS":
            raise bad_request("InvalidRequestPropertyValue", "rootSquash is only allowed for NFS shares.")

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        fill(outputs, {"shareQuota": 102400 if op.inputs.get("enabledProtocols") == "NFS" else 5120})
        if op.inputs.get("enabledProtocols") == "NFS":
            fill(outputs, {"rootSquash": "NoRootSquash"})
        outputs["lastModifiedTime"] = op.timestamp
        outputs["type"] = "Microsoft.Storage/storageAccounts/fileServices/shares"
