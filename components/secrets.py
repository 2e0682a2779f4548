"""The stack's secrets, and who may read them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, keyvault, managedidentity

from components.private_endpoint import PrivateEndpoint, PrivateEndpointArgs
from components.scope import StackScope
from plan.secrets import Secret

_VAULT_DOMAIN = ".vault.azure.net"
_SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
"""Azure's built-in role `Key Vault Secrets User`: read values, nothing else."""
_RETENTION_DAYS = {True: 90, False: 7}
"""How long Azure keeps a deleted vault, by protection: its default, and its minimum so that a dev name is free soon."""


@dataclass(frozen=True)
class SecretsArgs:
    """`values`: what the vault holds, None for an optional secret that the stack lacks. `vault_zone_id` is None where
    Azure Policy writes the names of private endpoints.
    """

    scope: StackScope
    tenant_id: pulumi.Input[str]
    values: Mapping[Secret, pulumi.Input[str] | None]
    operator_object_ids: tuple[str, ...]
    endpoint_subnet_id: pulumi.Input[str]
    vault_zone_id: pulumi.Input[str] | None


class Secrets(pulumi.ComponentResource):
    """Key Vault, its secrets, the nodes' identity, and who may read what.

    Nodes read the vault over its private endpoint; with `protect` its firewall denies every other network. The gateway
    reads nothing here: it gets the backend key by value (docs/decisions/0017).
    """

    vault: pulumi.Resource
    """Goes down with everything in it."""
    vault_id: pulumi.Output[str]
    """ARM id of the vault."""
    vault_uri: pulumi.Output[str]
    """`https://<name>.vault.azure.net/`. Made from the name: previews show `properties` without what Azure adds."""
    node_identity_id: pulumi.Output[str]
    """ARM id of the nodes' identity."""
    node_identity_client_id: pulumi.Output[str]
    """What a node names when it asks for a token."""
    version: pulumi.Output[str]
    """Another text whenever a secret has a new value; says nothing about the value itself."""
    ready: list[pulumi.Resource]
    """What must exist before a node can read a secret."""

    def __init__(self, name: str, args: SecretsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:secrets:Secrets", name, None, opts)
        self._name, self._scope = name, args.scope
        vault = self._vault = self._make_vault(args.tenant_id)
        secrets = [self._secret(secret.vault_name, value) for secret, value in args.values.items() if value is not None]
        nodes = self._identity("nodes", args.scope.names.identity)
        grants = [
            self._grant("nodes", nodes.principal_id, "ServicePrincipal"),
            *(self._grant(f"operator-{who}", who, "User") for who in args.operator_object_ids),
        ]
        endpoint = PrivateEndpoint(
            f"{name}-vault",
            PrivateEndpointArgs(
                scope=args.scope,
                endpoint_name="vault",
                subnet_id=args.endpoint_subnet_id,
                target_id=vault.id,
                group_id="vault",
                zone_id=args.vault_zone_id,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.vault, self.vault_id = vault, vault.id
        self.vault_uri = pulumi.Output.concat("https://", vault.name, _VAULT_DOMAIN, "/")
        self.node_identity_id, self.node_identity_client_id = nodes.id, nodes.client_id
        self.version = _version(secrets)
        self.ready = [*secrets, *grants, endpoint.ready]
        self.register_outputs({"vault_id": self.vault_id, "vault_uri": self.vault_uri})

    def _make_vault(self, tenant_id: pulumi.Input[str]) -> keyvault.Vault:
        protect = self._scope.protect
        return keyvault.Vault(
            f"{self._name}-vault",
            resource_group_name=self._scope.resource_group_name,
            vault_name=self._scope.names.key_vault,
            location=self._scope.location,
            properties=keyvault.VaultPropertiesArgs(
                tenant_id=tenant_id,
                sku=keyvault.SkuArgs(family="A", name=keyvault.SkuName.STANDARD),
                enable_rbac_authorization=True,
                enable_soft_delete=True,
                soft_delete_retention_in_days=_RETENTION_DAYS[protect],
                # Azure knows "on" and "never asked": false is refused, and on can't be undone.
                enable_purge_protection=True if protect else None,
                public_network_access="Enabled",
                network_acls=keyvault.NetworkRuleSetArgs(
                    bypass="AzureServices", default_action="Deny" if protect else "Allow"
                ),
            ),
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=protect,
                # Azure refuses another one, so a stack whose environment changes keeps what its vault was made with.
                ignore_changes=["properties.softDeleteRetentionInDays"],
            ),
        )

    def _secret(self, vault_name: str, value: pulumi.Input[str]) -> keyvault.Secret:
        return keyvault.Secret(
            f"{self._name}-{vault_name}",
            resource_group_name=self._scope.resource_group_name,
            vault_name=self._vault.name,
            secret_name=vault_name,
            properties=keyvault.SecretPropertiesArgs(value=pulumi.Output.secret(value)),
            tags=self._scope.first_tags,
            opts=stays_in_vault(self, self._vault),
        )

    def _identity(self, role: str, identity_name: str) -> managedidentity.UserAssignedIdentity:
        """User-assigned, so that replacing a VM changes no principal (docs/facts/azure.md#identities)."""
        return managedidentity.UserAssignedIdentity(
            f"{self._name}-{role}-identity",
            resource_group_name=self._scope.resource_group_name,
            resource_name_=identity_name,
            location=self._scope.location,
            tags=self._scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _grant(self, who: str, principal_id: pulumi.Input[str], principal_type: str) -> authorization.RoleAssignment:
        return authorization.RoleAssignment(
            f"{self._name}-{who}-reads",
            role_assignment_name=str(
                uuid.uuid5(uuid.NAMESPACE_URL, f"{self._scope.names.key_vault}/{who}/{_SECRETS_USER}")
            ),
            scope=self._vault.id,
            principal_id=principal_id,
            # Stated, so that Azure does not look up an identity that its directory has not replicated yet.
            principal_type=principal_type,
            role_definition_id=f"/providers/Microsoft.Authorization/roleDefinitions/{_SECRETS_USER}",
            opts=pulumi.ResourceOptions(parent=self),
        )


def stays_in_vault(parent: pulumi.Resource, vault: pulumi.Resource) -> pulumi.ResourceOptions:
    """A secret goes with its vault and not before: deleting one is a call to the vault's data, which the deployer may
    have no role for, and which the firewall of `prod` closes.
    """
    return pulumi.ResourceOptions(parent=parent, depends_on=[vault], retain_on_delete=True, deleted_with=vault)


def _version(secrets: Iterable[keyvault.Secret]) -> pulumi.Output[str]:
    """A digest of the secrets' versions, as Key Vault names them. Public: a version is a random id."""
    versions = pulumi.Output.all(*(secret.properties.secret_uri_with_version for secret in secrets))

    def digest(uris: Sequence[str | None]) -> str:
        # In a preview a secret that is about to change has no version yet.
        return hashlib.sha256("\n".join(uri or "" for uri in uris).encode()).hexdigest()[:12]

    return pulumi.Output.unsecret(versions).apply(digest)
