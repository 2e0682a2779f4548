"""Key Vault: global names, soft delete, recovery; secrets that come back as conflicts.

Facts: docs/facts/azure.md#key-vault. Secrets need no data-plane permission here.
"""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from typing import Any, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.faults import Operation
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.redaction import digest
from simulator.azure.state.store import Deleted, Resource
from simulator.plugin.values import dig, fill

DAY_S: Final = 86_400.0
_DAYS: Final = 90
_RETENTION_STAYS: Final = 'The property "softDeleteRetentionInDays" has been set already and it can\'t be modified.'
_IRREVERSIBLE: Final = (
    'The property "enablePurgeProtection" cannot be set to false. Enabling the purge protection for a vault is an '
    "irreversible action."
)


@imitates("keyvault:Vault")
class Vault(Rules):
    """Microsoft.KeyVault/vaults."""

    hidden = ("properties.createMode",)
    typical_seconds = 20.0

    def create(self, op: Op) -> None:
        taken = next(
            (vault for vault in op.state.of_type("keyvault:Vault") if vault.name.lower() == op.name.lower()), None
        )
        if taken is not None:
            raise conflict(
                "VaultAlreadyExists",
                f"The vault name '{op.name}' is already in use. Vault names are globaly unique so it is possible that "
                "the "
                "name is already taken.",
            )
        asleep = op.state.soft_deleted("keyvault:Vault", op.name, op.now)
        recover = dig(op.inputs, "properties.createMode") == "recover"
        if asleep is not None and not recover:
            raise conflict(
                "ConflictError",
                "A vault with the same name already exists in deleted state. You need to either recover or purge "
                "existing "
                f"key vault '{op.name}'. Follow this link https://go.microsoft.com/fwlink/?linkid=2149745 for more "
                "information on soft delete.",
            )
        if asleep is None and recover:
            raise bad_request("VaultNotFound", f"There is no deleted vault named '{op.name}' to recover.")
        self._require_shape(op)

    def update(self, op: Op) -> None:
        before = op.old.properties if op.old else {}
        if dig(before, "properties.enablePurgeProtection") and not dig(
            op.inputs, "properties.enablePurgeProtection", True
        ):
            raise bad_request(
                "BadRequest",
                _IRREVERSIBLE,
            )
        kept = dig(before, "properties.softDeleteRetentionInDays", _DAYS)
        if dig(op.inputs, "properties.softDeleteRetentionInDays", _DAYS) != kept:
            raise bad_request("BadRequest", _RETENTION_STAYS)
        self._require_shape(op)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        fill(
            outputs["properties"],
            {
                "vaultUri": f"https://{op.name.lower()}.vault.azure.net/",
                "provisioningState": "Succeeded",
                "enableSoftDelete": True,
                "softDeleteRetentionInDays": _DAYS,
                "enableRbacAuthorization": False,
                "enabledForDeployment": False,
                "publicNetworkAccess": "Enabled",
                "accessPolicies": dig(op.old.properties if op.old else {}, "properties.accessPolicies", []),
            },
        )

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        """Recovery brings the name back into use, and the secrets that went with the vault."""
        if op.kind is Operation.CREATE:
            for item in op.state.deleted:
                if item.id.lower().startswith(f"{op.id.lower()}/secrets/"):
                    op.state.put(Resource(**item.properties))
            op.state.deleted = [item for item in op.state.deleted if not _within(item, resource)]
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        days = int(dig(resource.properties, "properties.softDeleteRetentionInDays", 90))
        protected = bool(dig(resource.properties, "properties.enablePurgeProtection", False))
        _bury(op, resource, days, protected=protected)

    def _require_shape(self, op: Op) -> None:
        body = op.inputs["properties"]
        if body.get("enablePurgeProtection") is False:
            raise bad_request(
                "BadRequest",
                _IRREVERSIBLE,
            )
        if not 7 <= body.get("softDeleteRetentionInDays", 90) <= 90:
            raise bad_request("BadRequest", "The property softDeleteRetentionInDays must be between 7 and 90.")


def _within(item: Deleted, vault: Resource) -> bool:
    same_name = item.token == vault.token and item.name.lower() == vault.name.lower()
    return same_name or item.id.lower().startswith(f"{vault.id.lower()}/")


def _bury(op: Op, resource: Resource, days: int, *, protected: bool) -> None:
    op.state.deleted.append(
        Deleted(
            id=resource.id,
            token=resource.token,
            name=resource.name,
            location=resource.location,
            deleted=op.now,
            purge_at=op.now + days * DAY_S,
            purge_protected=protected,
            properties=vars(resource) if resource.key == "keyvault:Secret" else {},
        )
    )


@imitates("keyvault:Secret")
class Secret(Rules):
    """Microsoft.KeyVault/vaults/secrets; the value is write-only."""

    hidden = ("properties.value",)
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        for item in op.state.deleted:
            if item.id.lower() == op.id.lower() and item.purge_at > op.now:
                raise conflict(
                    "Conflict",
                    f"Secret {op.name} is currently in a deleted but recoverable state, and its name cannot be "
                    "reused; in "
                    "this state, the secret can only be recovered or purged.",
                )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        vault = op.state.get(op.parent_id)
        value = dig(op.inputs, "properties.value")
        before = op.old.notes.get("value") if op.old else None
        mark = digest(op.state.salt, value) if value is not None else before
        op.notes["value"] = mark
        count = (op.old.notes.get("count", 0) if op.old else 0) + (1 if mark != before else 0)
        op.notes["count"] = count
        uri = f"{dig(vault.properties if vault else {}, 'properties.vaultUri', '')}secrets/{op.name}"
        version = digest(op.state.salt, [op.id, count])[:32]
        body = outputs["properties"]
        body["secretUri"], body["secretUriWithVersion"] = uri, f"{uri}/{version}"
        body["attributes"] = {"enabled": True, **(body.get("attributes") or {})}
        body["attributes"].setdefault("created", int(op.old.created if op.old else op.now))
        outputs["location"] = vault.location if vault else op.location

    def removed(self, op: Op, resource: Resource) -> None:
        """It stays recoverable, on its own or together with its vault."""
        vault = op.state.get(resource.id.rsplit("/", 2)[0])
        days = int(dig(vault.properties if vault else {}, "properties.softDeleteRetentionInDays", 90))
        protected = bool(dig(vault.properties if vault else {}, "properties.enablePurgeProtection", False))
        _bury(op, resource, days, protected=protected)
