from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi
import pytest

from components.secrets import Secrets, SecretsArgs
from plan.secrets import Secret as StackSecret
from simulator.azure.sdk.paths import TENANT
from simulator.plugin.values import UNKNOWN, Secret
from tests.unit.builders import arm_id, plan, scope, secret
from tests.unit.recording import CANARY, Recording, assert_no_canary_outside_secrets, run_program

VAULT, SECRET, IDENTITY = "keyvault:Vault", "keyvault:Secret", "managedidentity:UserAssignedIdentity"
GRANT, ENDPOINT = "authorization:RoleAssignment", "network:PrivateEndpoint"
SUBNET_ID = arm_id("Microsoft.Network/virtualNetworks", "vnet") + "/subnets/endpoints"
ZONE_ID = arm_id("Microsoft.Network/privateDnsZones", "privatelink.vaultcore.azure.net")
OPERATORS = ("aaaaaaaa-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002")
SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"


@cache
def built(stack: str = "dev", preview: bool = False, hub_token: bool = True) -> Recording:
    def program() -> Mapping[str, Any]:
        secrets = Secrets(
            "secrets",
            SecretsArgs(
                scope=scope(plan(stack)),
                tenant_id=TENANT,
                values={
                    StackSecret.BACKEND_KEY: secret("backend"),
                    StackSecret.RAY_TOKEN: secret("ray"),
                    StackSecret.MODEL_HUB_TOKEN: secret("hub") if hub_token else None,
                },
                operator_object_ids=OPERATORS,
                endpoint_subnet_id=SUBNET_ID,
                vault_zone_id=ZONE_ID,
            ),
        )
        return {
            "vault_id": secrets.vault_id,
            "vault_uri": secrets.vault_uri,
            "node_identity": [secrets.node_identity_id, secrets.node_identity_client_id],
            "ready": pulumi.Output.all(*(resource.urn for resource in secrets.ready)),
        }

    return run_program(program, stack, preview)


def test_the_vault_takes_roles_and_keeps_what_is_deleted_for_a_while(preview: bool) -> None:
    vault = built(preview=preview).one(VAULT)
    names = plan().names
    assert vault["vaultName"] == names.key_vault
    assert vault["properties.tenantId"] == TENANT
    assert vault["properties.enableRbacAuthorization"] is True
    assert vault["properties.enableSoftDelete"] is True
    assert vault["properties.accessPolicies"] is None


@pytest.mark.parametrize(
    ("stack", "protect", "purge_protection", "days", "action"),
    [("dev", False, None, 7, "Allow"), ("prod", True, True, 90, "Deny")],
)
def test_prod_is_locked_and_dev_destroys_cleanly(
    stack: str, protect: bool, purge_protection: bool | None, days: int, action: str, preview: bool
) -> None:
    recording = built(stack, preview)
    vault = recording.one(VAULT)
    assert vault.protect is protect
    assert vault["properties.enablePurgeProtection"] is purge_protection
    assert vault["properties.softDeleteRetentionInDays"] == days
    assert vault["properties.networkAcls"] == {"bypass": "AzureServices", "defaultAction": action}
    # Another environment on a vault that is there: Azure refuses another retention.
    assert vault.ignore_changes == ("properties.softDeleteRetentionInDays",)
    # What holds no data can always go.
    assert not any(item.protect for kind in (IDENTITY, GRANT, ENDPOINT) for item in recording.of(kind))


def test_values_are_secret_and_appear_nowhere_else(preview: bool) -> None:
    recording = built(preview=preview)
    assert {item["secretName"]: item["properties.value"] for item in recording.of(SECRET)} == {
        "backend-key": f"{CANARY}-backend",
        "ray-token": f"{CANARY}-ray",
        "model-hub-token": f"{CANARY}-hub",
    }
    for item in recording.of(SECRET):
        assert isinstance(item.inputs["properties"], Secret) or isinstance(item.inputs["properties"]["value"], Secret)
    assert_no_canary_outside_secrets(recording)


def test_a_plain_value_is_made_secret_too() -> None:
    values = {StackSecret.BACKEND_KEY: f"{CANARY}-a", StackSecret.RAY_TOKEN: f"{CANARY}-b"}
    args = SecretsArgs(scope(plan()), TENANT, values, (), SUBNET_ID, ZONE_ID)
    recording = run_program(lambda: {"id": Secrets("secrets", args).vault_id})
    assert_no_canary_outside_secrets(recording)


def test_no_hub_token_no_secret(preview: bool) -> None:
    names = {item["secretName"] for item in built(preview=preview, hub_token=False).of(SECRET)}
    assert names == {"backend-key", "ray-token"}


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_no_secret_is_deleted_by_a_call_to_the_vaults_data(stack: str) -> None:
    recording = built(stack)
    for item in recording.of(SECRET):
        assert item.retain_on_delete, "a secret that leaves the stack file"
        assert item.deleted_with == recording.one(VAULT).urn, "a destroy"
        assert not item.protect, "or the secret could not leave the stack file of prod"


def test_a_secret_has_as_many_tags_as_it_takes_and_ours_are_among_them() -> None:
    tags = {f"tag-{number}": "x" for number in range(38)}
    args = SecretsArgs(scope(plan(tags=tags)), TENANT, {StackSecret.RAY_TOKEN: "r"}, (), SUBNET_ID, ZONE_ID)
    recording = run_program(lambda: {"id": Secrets("secrets", args).vault_id})
    kept = recording.one(SECRET)["tags"]
    assert len(kept) == 15
    assert kept.keys() >= {"project", "stack", "environment"}
    assert len(recording.one(VAULT)["tags"]) == 43


def test_nodes_have_an_identity_and_the_gateway_none(preview: bool) -> None:
    recording = built(preview=preview)
    nodes = recording.one(IDENTITY)
    assert nodes["resourceName"] == "huddleai-dev-nodes-id"
    if not preview:
        assert recording.exports["node_identity"][0] == nodes.id


def test_who_may_read_what() -> None:
    recording = built()
    vault_id = recording.one(VAULT).id
    scopes = {grant.name.removeprefix("secrets-"): grant["scope"] for grant in recording.of(GRANT)}
    assert scopes == {
        "nodes-reads": vault_id,
        **{f"operator-{who}-reads": vault_id for who in OPERATORS},
    }
    for grant in recording.of(GRANT):
        assert grant["roleDefinitionId"] == f"/providers/Microsoft.Authorization/roleDefinitions/{SECRETS_USER}"
        who = "User" if "operator" in grant.name else "ServicePrincipal"
        assert grant["principalType"] == who
    principals = [grant["principalId"] for grant in recording.of(GRANT)]
    assert len(set(principals)) == len(principals)
    assert set(OPERATORS) < set(principals)


def test_role_assignments_have_the_same_guid_in_every_run_and_different_ones_in_every_stack() -> None:
    def names(recording: Recording) -> dict[str, str]:
        return {grant.name: grant["roleAssignmentName"] for grant in recording.of(GRANT)}

    dev = names(built())
    assert dev == names(built(preview=True))
    assert len(set(dev.values())) == 3
    assert all(str(uuid.UUID(name)) == name for name in dev.values())
    assert not set(dev.values()) & set(names(built("prod")).values())


def test_the_vault_is_reached_over_a_private_endpoint(preview: bool) -> None:
    recording = built(preview=preview)
    endpoint = recording.one(ENDPOINT)
    assert endpoint["subnet.id"] == SUBNET_ID
    assert endpoint["privateLinkServiceConnections.0.groupIds"] == ["vault"]
    assert endpoint["privateLinkServiceConnections.0.privateLinkServiceId"] == (
        UNKNOWN if preview else recording.one(VAULT).id
    )
    assert recording.one("network:PrivateDnsZoneGroup")["privateDnsZoneConfigs.0.privateDnsZoneId"] == ZONE_ID


def test_the_vaults_address_is_known_in_preview(preview: bool) -> None:
    exports, name = built(preview=preview).exports, plan().names.key_vault
    assert exports["vault_uri"] == f"https://{name}.vault.azure.net/"


def test_ready_covers_secrets_roles_and_the_endpoints_name() -> None:
    recording = built()
    ready = set(recording.exports["ready"])
    expected = [*recording.of(SECRET), *recording.of(GRANT), recording.one("network:PrivateDnsZoneGroup")]
    assert ready == {resource.urn for resource in expected}
