"""Key Vault, storage, identities, monitoring, schedules, functions, and the list of all imitated types."""

import pytest

from simulator.azure import portal
from simulator.azure.errors import SimulatorError
from simulator.azure.rules import imitated
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import TEMPLATES, path_of
from simulator.plugin.values import Secret
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError

# --- Key Vault


def test_vault_soft_delete_and_recovery(ground):
    vault = b.vault(ground, softDeleteRetentionInDays=7)
    secret = b.secret(ground)
    ground.delete(vault)
    assert ground.state.resources.keys() == {
        f"/subscriptions/{ground.cloud.settings.subscription}/resourcegroups/rg-test"
    }
    with pytest.raises(RefusedError, match=r"ConflictError.*already exists in deleted state.*recover or purge"):
        b.vault(ground)
    recovered = b.vault(ground, createMode="recover")
    assert "createMode" not in recovered.outputs["properties"]
    with pytest.raises(RefusedError, match=r"cannot create already existing resource .*secrets/backend-key"):
        b.secret(ground)
    assert ground.refresh(secret).outputs["properties"]["secretUri"] == secret.outputs["properties"]["secretUri"]


def test_purging_a_vault_forgets_its_secrets(ground):
    vault = b.vault(ground)
    b.secret(ground)
    ground.delete(vault)
    assert portal.purge(ground.cloud.store, "kv-test") == 2
    b.vault(ground)
    assert b.secret(ground).id


def test_purge_protection(ground):
    vault = b.vault(ground, enablePurgeProtection=True)
    body = {**vault.inputs["properties"], "enablePurgeProtection": False}
    with pytest.raises(RefusedError, match=r"cannot be set to false.*irreversible"):
        ground.change(vault, properties=body)
    ground.delete(vault)
    with pytest.raises(SimulatorError, match=r"has purge protection"):
        portal.purge(ground.cloud.store, "kv-test")


def test_a_vaults_retention_stays_as_it_was_made(ground):
    vault = b.vault(ground, softDeleteRetentionInDays=7)
    for days in (90, 8, None):
        with pytest.raises(RefusedError, match=r"has been set already and it can't be modified"):
            ground.change(vault, properties={**vault.inputs["properties"], "softDeleteRetentionInDays": days})
    ground.change(vault, properties={**vault.inputs["properties"], "publicNetworkAccess": "Disabled"})


def test_a_secret_takes_fifteen_tags(ground):
    b.vault(ground)
    made = b.secret(ground)
    tags = {f"tag-{number}": "x" for number in range(16)}
    with pytest.raises(RefusedError, match=r"Code=\"BadParameter\""):
        ground.change(made, tags=tags)
    del tags["tag-0"]
    assert ground.change(made, tags=tags).outputs["tags"] == tags


def test_vault_names_are_global_and_retention_has_bounds(ground):
    b.vault(ground)
    ground.create("resources:ResourceGroup", "two", {"resourceGroupName": "rg-two"})
    with pytest.raises(RefusedError, match=r"VaultAlreadyExists"):
        ground.create("keyvault:Vault", "two", {**b.vault_inputs(), "resourceGroupName": "rg-two"})
    with pytest.raises(RefusedError, match=r"between 7 and 90"):
        ground.create("keyvault:Vault", "three", b.vault_inputs("kv-three", softDeleteRetentionInDays=3))
    with pytest.raises(RefusedError, match=r"no deleted vault named 'kv-four'"):
        ground.create("keyvault:Vault", "four", b.vault_inputs("kv-four", createMode="recover"))


def test_a_secrets_version_follows_its_value(ground):
    b.vault(ground)
    first = b.secret(ground)
    versioned = first.outputs["properties"]["secretUriWithVersion"]
    same = ground.change(first, tags={"a": "b"})
    assert same.outputs["properties"]["secretUriWithVersion"] == versioned
    other = ground.change(first, properties={"value": Secret("another-secret-value")})
    assert other.outputs["properties"]["secretUriWithVersion"] != versioned
    assert other.outputs["properties"]["secretUri"] == first.outputs["properties"]["secretUri"]


def test_a_deleted_secret_blocks_its_name(ground):
    b.vault(ground)
    ground.delete(b.secret(ground))
    with pytest.raises(RefusedError, match=r"deleted but recoverable state, and its name cannot be reused"):
        b.secret(ground)


# --- storage


def account_inputs(**more):
    return b.in_group(**{"accountName": "sthuddle", "kind": "FileStorage", "sku": {"name": "Premium_LRS"}, **more})


def share_inputs(**more):
    return b.in_group(
        **{"accountName": "sthuddle", "shareName": "models", "enabledProtocols": "NFS", "shareQuota": 1024, **more}
    )


def test_nfs_share(ground):
    account = ground.create("storage:StorageAccount", "account", account_inputs())
    assert account.outputs["primaryEndpoints"] == {"file": "https://sthuddle.file.core.windows.net/"}
    share = ground.create("storage:FileShare", "models", share_inputs())
    assert share.id.endswith("/fileServices/default/shares/models") and share.outputs["rootSquash"] == "NoRootSquash"
    with pytest.raises(RefusedError, match=r"quota 50 is too small: at least 100"):
        ground.create("storage:FileShare", "small", share_inputs(shareName="small", shareQuota=50))
    keys = ground.invoke("storage:listStorageAccountKeys", **b.in_group(accountName="sthuddle"))
    assert [key["keyName"] for key in keys["keys"]] == ["key1", "key2"]
    with pytest.raises(RefusedError, match=r"'kind' was specified in the input, but it cannot be updated"):
        ground.change(account, kind="StorageV2", sku={"name": "Standard_LRS"})


def test_nfs_needs_ssd_and_names_are_global(ground):
    plain = account_inputs(kind="StorageV2", sku={"name": "Standard_LRS"})
    ground.create("storage:StorageAccount", "account", plain)
    with pytest.raises(RefusedError, match=r"NFS is not supported for the account"):
        ground.create("storage:FileShare", "models", share_inputs())
    with pytest.raises(RefusedError, match=r"rootSquash is only allowed for NFS"):
        ground.create("storage:FileShare", "smb", share_inputs(enabledProtocols="SMB", rootSquash="RootSquash"))
    with pytest.raises(RefusedError, match=r"Account kind 'FileStorage' does not go with sku 'Standard_LRS'"):
        ground.create(
            "storage:StorageAccount", "bad", account_inputs(accountName="stbad", sku={"name": "Standard_LRS"})
        )
    ground.create("resources:ResourceGroup", "two", {"resourceGroupName": "rg-two"})
    with pytest.raises(RefusedError, match=r"StorageAccountAlreadyTaken"):
        ground.create("storage:StorageAccount", "two", {**plain, "resourceGroupName": "rg-two"})


# --- identities and roles

ROLE = "/subscriptions/0/providers/Microsoft.Authorization/roleDefinitions/4633458b-17de-408a-b874-0445c86b69e6"
OTHER_ROLE = ROLE.replace("4633458b", "00000000")
NAME = "11111111-2222-3333-4444-555555555555"


def identity(azure):
    return azure.create("managedidentity:UserAssignedIdentity", "id", b.in_group(resourceName="id-node"))


def assignment(azure, made, name=NAME, **more):
    scope = f"/subscriptions/{azure.cloud.settings.subscription}/resourceGroups/{b.GROUP}"
    body = {"scope": scope, "principalId": made.outputs["principalId"], "roleDefinitionId": ROLE, **more}
    return azure.create("authorization:RoleAssignment", name, {"roleAssignmentName": name, **body})


def test_identities_are_stable_while_they_live(ground):
    made = identity(ground)
    again = ground.change(made, tags={"a": "b"})
    assert again.outputs["principalId"] == made.outputs["principalId"] != made.outputs["clientId"]
    ground.delete(made)
    assert identity(ground).outputs["principalId"] != made.outputs["principalId"]


def test_role_assignments(ground):
    made = identity(ground)
    role = assignment(ground, made)
    assert role.id.endswith(f"/resourceGroups/rg-test/providers/Microsoft.Authorization/roleAssignments/{NAME}")
    with pytest.raises(RefusedError, match=r"RoleAssignmentExists"):
        assignment(ground, made, NAME.replace("1", "2"))
    with pytest.raises(RefusedError, match=r"role assignment ID 'nice' is not valid.*GUID"):
        assignment(ground, made, "nice")
    with pytest.raises(RefusedError, match=r"valid principal ID"):
        assignment(ground, made, NAME.replace("1", "3"), principalId="me")
    with pytest.raises(RefusedError, match=r"role definition ID 'Reader' is not valid"):
        assignment(ground, made, NAME.replace("1", "3"), roleDefinitionId="Reader")
    with pytest.raises(RefusedError, match=r"RoleAssignmentUpdateNotPermitted"):
        ground.change(role, roleDefinitionId=OTHER_ROLE)


# --- monitoring and schedules


def test_auto_shutdown_is_known_by_its_name(azure):
    vm = b.node(azure)
    body = b.in_group(
        name="shutdown-computevm-node-1",
        taskType="ComputeVmShutdownTask",
        dailyRecurrence={"time": "1900"},
        timeZoneId="UTC",
        targetResourceId=vm.id,
    )
    assert azure.create("devtestlab:GlobalSchedule", "stop", body).outputs["status"] == "Enabled"
    with pytest.raises(RefusedError, match=r"must be named 'shutdown-computevm-node-1', not 'stop'"):
        azure.create("devtestlab:GlobalSchedule", "stop", {**body, "name": "stop"})
    azure.delete(
        azure.import_("devtestlab:GlobalSchedule", "stop", azure.state.of_type("devtestlab:GlobalSchedule")[0].id)
    )
    with pytest.raises(RefusedError, match=r"daily time '7pm' is not of the form HHMM"):
        azure.create("devtestlab:GlobalSchedule", "stop", {**body, "dailyRecurrence": {"time": "7pm"}})
    with pytest.raises(RefusedError, match=r"must be in the VM's location 'eastus'"):
        azure.create("devtestlab:GlobalSchedule", "stop", {**body, "location": "westus"})


def test_monitoring(ground):
    workspace = ground.create("operationalinsights:Workspace", "logs", b.in_group(workspaceName="logs"))
    assert len(workspace.outputs["customerId"]) == 36
    insights = b.in_group(resourceName="insights", kind="web", applicationType="web")
    with pytest.raises(RefusedError, match=r"need a WorkspaceResourceId"):
        ground.create("applicationinsights:Component", "insights", insights)
    made = ground.create("applicationinsights:Component", "insights", {**insights, "workspaceResourceId": workspace.id})
    assert made.outputs["connectionString"].startswith(f"InstrumentationKey={made.outputs['instrumentationKey']};")
    keys = ground.invoke("operationalinsights:getSharedKeys", **b.in_group(workspaceName="logs"))
    assert keys["primarySharedKey"] != keys["secondarySharedKey"]
    with pytest.raises(RefusedError, match=r"At least one data sink"):
        ground.create("monitor:DiagnosticSetting", "d", {"name": "d", "resourceUri": workspace.id})
    setting = {"name": "d", "resourceUri": made.id, "workspaceId": workspace.id}
    diagnostic = ground.create("monitor:DiagnosticSetting", "d", setting)
    assert diagnostic.id == f"{made.id}/providers/Microsoft.Insights/diagnosticSettings/d"
    ground.delete(made)
    assert ground.refresh(diagnostic) is None
    group = b.in_group(actionGroupName="ops", groupShortName="ops", enabled=True, location="global")
    assert ground.create("monitor:ActionGroup", "ops", group).id.endswith("/actionGroups/ops")


def test_metric_alerts_are_global(azure):
    vm = b.node(azure)
    body = b.in_group(
        ruleName="cpu",
        enabled=True,
        severity=2,
        scopes=[vm.id],
        evaluationFrequency="PT1M",
        windowSize="PT5M",
        criteria={"odataType": "Microsoft.Azure.Monitor.SingleResourceMultipleMetricCriteria", "allOf": []},
    )
    with pytest.raises(RefusedError, match=r"LocationNotAvailableForResourceType.*metricAlerts"):
        azure.create("monitor:MetricAlert", "cpu", body)
    assert azure.create("monitor:MetricAlert", "cpu", {**body, "location": "global"}).id


# --- functions


def test_client_config_is_stable(azure):
    first = azure.invoke("authorization:getClientConfig")
    assert first == azure.invoke("authorization:getClientConfig")
    assert first["subscriptionId"] == azure.cloud.settings.subscription
    assert azure.invoke("authorization:getClientToken")["token"].startswith("simulated")


def test_get_any_resource(ground):
    disk = b.disk(ground)
    found = ground.invoke("compute:getDisk", **b.in_group(diskName="models"))
    assert found["id"] == disk.id and found["diskSizeGB"] == 1024 and found["azureApiVersion"]
    with pytest.raises(RefusedError, match=r"ResourceNotFound"):
        ground.invoke("compute:getDisk", **b.in_group(diskName="nothing"))


def test_a_function_nobody_imitates_says_so(azure):
    with pytest.raises(RefusedError, match=r"azure-native:storage:listStorageAccountSAS is not imitated"):
        azure.invoke("storage:listStorageAccountSAS")


# --- the tables


@pytest.mark.parametrize("key", sorted(TEMPLATES))
def test_every_path_has_the_parameters_the_sdk_knows(key):
    resource = schema.resource(f"azure-native:{key}")
    params = path_of(resource).params
    assert set(params) <= set(resource.inputs)
    assert set(resource.path_params) <= set(params)
    values = {name: f"x{number}" for number, name in enumerate(params)}
    resource_id = path_of(resource).build(values)
    assert path_of(resource).parse(resource_id) == values


@pytest.mark.parametrize("key", sorted(imitated()))
def test_every_imitated_type_exists(key):
    assert schema.resource(f"azure-native:{key}").outputs
    assert key in TEMPLATES


NEEDED = """
resources:ResourceGroup network:VirtualNetwork network:NetworkSecurityGroup network:NatGateway network:PublicIPAddress
network:PublicIPPrefix network:NetworkInterface network:BastionHost network:PrivateEndpoint network:PrivateDnsZoneGroup
privatedns:PrivateZone privatedns:VirtualNetworkLink privatedns:PrivateRecordSet compute:VirtualMachine compute:Disk
compute:VirtualMachineRunCommandByVirtualMachine devtestlab:GlobalSchedule keyvault:Vault keyvault:Secret
managedidentity:UserAssignedIdentity authorization:RoleAssignment storage:StorageAccount storage:FileShare
operationalinsights:Workspace applicationinsights:Component monitor:DiagnosticSetting monitor:ActionGroup
monitor:MetricAlert apimanagement:ApiManagementService apimanagement:Api apimanagement:ApiOperation
apimanagement:ApiPolicy apimanagement:ApiDiagnostic apimanagement:Diagnostic apimanagement:Logger apimanagement:Backend
apimanagement:NamedValue apimanagement:Product apimanagement:ProductApi apimanagement:ProductPolicy
apimanagement:ProductGroup apimanagement:Subscription apimanagement:PolicyFragment
"""


@pytest.mark.parametrize("key", NEEDED.split())
def test_the_types_of_the_stack_are_imitated(key):
    assert key in imitated()
