"""Backends, named values, loggers and diagnostics: what they need, and who holds on to them."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import re
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request
from simulator.azure.rules.apim.entities import Entity, require_quiet_service
from simulator.azure.rules.apim.names import absolute, named_values_by_display_name, service_of, used_by
from simulator.azure.rules.apim.policy_xml import NAMED_VALUE, validation_error
from simulator.azure.rules.apim.service import tier_of
from simulator.azure.rules.base import Op, imitates
from simulator.azure.rules.identity import holds_role
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig, fill, walk

_SECRET_URI: Final = re.compile(
    r"^https://(?P<vault>[a-z0-9-]+)\.vault\.azure\.net/secrets/(?P<name>[^/]+)(/.*)?$", re.IGNORECASE
)
# Built-in roles whose holders may read secret values (learn.microsoft.com, "Azure built-in roles").
SECRET_READERS: Final = frozenset(
    {
        "4633458b-17de-408a-b874-0445c86b69e6",  # Key Vault Secrets User
        "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",  # Key Vault Secrets Officer
        "00482a5a-887f-4fb3-b363-3b7fe8e74483",  # Key Vault Administrator
    }
)


@imitates("apimanagement:Backend")
class Backend(Entity):
    """Single backends and pools."""

    defaults: ClassVar[dict[str, Any]] = {"type": "Single"}

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        members = dig(op.inputs, "pool.services", []) or []
        if op.inputs.get("type", "Single") == "Pool":
            self._require_pool(op, members)
        elif not op.inputs.get("url") or not op.inputs.get("protocol"):
            raise validation_error("a backend of type Single needs 'url' and 'protocol'.")
        op.extra_refs = [absolute(op, member.get("id")) for member in members] + named_value_refs(op, op.inputs)
        breakers = dig(op.inputs, "circuitBreaker.rules", []) or []
        service = op.state.get(service_of(op.id))
        if breakers and service is not None and tier_of(service.properties) == "Consumption":
            raise validation_error("circuit breaker is not supported in tier 'Consumption'.")
        if len(breakers) > 1:
            raise validation_error("only one circuit breaker rule is allowed for a backend.")

    def delete(self, op: Op) -> None:
        if error := used_by(op, f"The Backend '{op.name}'"):
            raise error

    def _require_pool(self, op: Op, members: list[dict[str, Any]]) -> None:
        if not 1 <= len(members) <= 30:
            raise validation_error(f"a pool has 1 to 30 backends, not {len(members)}.")
        for member in members:
            target = op.state.get(absolute(op, member.get("id")))
            if target is None:
                raise validation_error(f"Backend with id '{member.get('id')}' of the pool could not be found.")
            if target.properties.get("type") == "Pool":
                raise validation_error(f"Backend '{target.name}' is a pool; a pool cannot be in a pool.")
            for key in ("priority", "weight"):
                if not 0 <= member.get(key, 0) <= 100:
                    raise validation_error(f"{key} of a pool member is {member[key]}, allowed: 0 to 100.")


def named_value_refs(op: Op, body: dict[str, Any]) -> list[str]:
    """Ids of the named values that texts of a body call by `{{name}}`.

    Raises:
        ArmError: one of them does not exist.
    """
    known = named_values_by_display_name(op.state, service_of(op.id))
    found: list[str] = []
    for _, text in walk(body):
        for name in NAMED_VALUE.findall(text) if isinstance(text, str) else ():
            if name.lower() not in known:
                raise validation_error(f"Cannot find a property '{name}'.")
            found.append(known[name.lower()].id)
    return found


@imitates("apimanagement:NamedValue")
class NamedValue(Entity):
    """Named values: plain, secret, or read from Key Vault."""

    defaults: ClassVar[dict[str, Any]] = {"secret": False}

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        name = str(op.inputs["displayName"])
        other = named_values_by_display_name(op.state, service_of(op.id)).get(name.lower())
        if other is not None and other.id.lower() != op.id.lower():
            raise ArmError(409, "ValidationError", f"A named value with the display name '{name}' already exists.")
        vault_reference = op.inputs.get("keyVault")
        if vault_reference:
            self._require_secret(op, vault_reference)
        elif not op.inputs.get("value"):
            raise validation_error("a named value needs a 'value' or a 'keyVault' reference.")
        elif len(str(op.inputs["value"])) > 4096:
            raise validation_error("the value is longer than 4096 characters.")

    def update(self, op: Op) -> None:
        before = op.old.properties.get("displayName") if op.old else None
        if before != op.inputs["displayName"] and (error := used_by(op, f"Property '{op.name}'")):
            raise error
        self.create(op)

    def delete(self, op: Op) -> None:
        if error := used_by(op, f"Property '{op.name}'"):
            raise error

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        value = op.inputs.get("value")
        if op.inputs.get("keyVault"):
            outputs["secret"] = True
            outputs["keyVault"]["lastStatus"] = {"code": "Success", "timeStampUtc": op.timestamp}
        if outputs.get("secret"):
            outputs.pop("value", None)
            if value is not None:
                op.notes["value"] = op.digest(value)

    def _require_secret(self, op: Op, reference: dict[str, Any]) -> None:
        found = _SECRET_URI.match(str(reference.get("secretIdentifier", "")))
        if not found:
            raise validation_error("keyVault.secretIdentifier is not the URI of a Key Vault secret.")
        vault = next(
            (v for v in op.state.of_type("keyvault:Vault") if v.name.lower() == found["vault"].lower()),
            None,
        )
        if vault is None or op.state.get(f"{vault.id}/secrets/{found['name']}") is None:
            raise validation_error(f"the Key Vault secret '{found['name']}' of vault '{found['vault']}' was not found.")
        principal = self._principal(op, reference.get("identityClientId"))
        firewall = dig(vault.properties, "properties.networkAcls.defaultAction") == "Deny"
        if firewall and reference.get("identityClientId"):
            raise bad_request(
                "ValidationError",
                f"Access denied to Key Vault {found['vault']}: its firewall is enabled, and behind it only the "
                "service's system-assigned identity can read, not a user-assigned one.",
            )
        if not _may_read(op, vault, found["name"], principal):
            raise bad_request(
                "ValidationError",
                f"Access denied to Key Vault {found['vault']}: the identity {principal} may not get secrets. Grant it "
                "the "
                "role 'Key Vault Secrets User' (or an access policy) first.",
            )

    def _principal(self, op: Op, client_id: str | None) -> str:
        service = op.state.get(service_of(op.id))
        identity = dig(service.properties if service else {}, "identity", {}) or {}
        if not client_id:
            if not identity.get("principalId"):
                raise validation_error("the service has no system-assigned identity to read the Key Vault secret with.")
            return str(identity["principalId"])
        for assigned in (identity.get("userAssignedIdentities") or {}).values():
            if assigned.get("clientId") == client_id:
                return str(assigned.get("principalId"))
        raise validation_error(f"the identity with client id '{client_id}' is not assigned to the service.")


def _may_read(op: Op, vault: Resource, secret: str, principal: str) -> bool:
    """Roles count at the secret itself and above it; access policies only know whole vaults."""
    body = vault.properties.get("properties") or {}
    if body.get("enableRbacAuthorization"):
        return holds_role(op, principal, f"{vault.id}/secrets/{secret}", SECRET_READERS)
    return any(
        policy.get("objectId") == principal
        and "get" in {str(item).lower() for item in dig(policy, "permissions.secrets", []) or []}
        for policy in body.get("accessPolicies") or []
    )


@imitates("apimanagement:Logger")
class Logger(Entity):
    """Loggers; a GET shows references in place of credentials."""

    defaults: ClassVar[dict[str, Any]] = {"isBuffered": True}

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        credentials = op.inputs.get("credentials") or {}
        kind = op.inputs["loggerType"]
        if kind == "applicationInsights" and not {"instrumentationKey", "connectionString"} & set(credentials):
            raise validation_error("credentials need 'instrumentationKey' or 'connectionString'.")
        op.extra_refs = named_value_refs(op, {"credentials": credentials})

    def delete(self, op: Op) -> None:
        if error := used_by(op, f"The Logger '{op.name}'"):
            raise error

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        mark = derived(op.state.salt, op.id, "credentials", length=24)
        shown = {
            key: value if NAMED_VALUE.search(str(value)) else f"{{{{Logger-Credentials--{mark}}}}}"
            for key, value in (op.inputs.get("credentials") or {}).items()
            if key in {"instrumentationKey", "connectionString"}
        }
        if shown:
            outputs["credentials"] = shown


@imitates("apimanagement:Diagnostic", "apimanagement:ApiDiagnostic")
class Diagnostic(Entity):
    """Diagnostics of the service or of one API."""

    def create(self, op: Op) -> None:
        require_quiet_service(op)
        if op.name not in {"applicationinsights", "azuremonitor", "local"}:
            raise validation_error(f"diagnostic id '{op.name}' is not one of applicationinsights, azuremonitor, local.")
        logger = absolute(op, op.inputs["loggerId"])
        found = op.state.get(logger)
        if found is None:
            raise validation_error(f"Logger with id '{logger.rsplit('/', 1)[-1]}' could not be found.")
        if op.name == "applicationinsights" and found.properties.get("loggerType") != "applicationInsights":
            raise validation_error(f"Logger '{found.name}' is not of type applicationInsights.")
        op.extra_refs = [logger]

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["loggerId"] = absolute(op, op.inputs["loggerId"])
        fill(outputs, {"logClientIp": True})


@imitates("apimanagement:Group")
class Group(Entity):
    """Groups; the built-in ones exist already."""

    def delete(self, op: Op) -> None:
        if op.old and op.old.properties.get("builtIn"):
            raise bad_request("ValidationError", f"System group '{op.name}' cannot be deleted.")
