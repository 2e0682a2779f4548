"""Check: names, defaults, and everything the SDK's types know."""

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2

from simulator.plugin.values import UNKNOWN
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import CheckRefusedError

Autonaming = provider_pb2.CheckRequest.AutonamingOptions


def test_name_is_logical_name_and_eight_hex_digits_of_the_seed(azure):
    inputs, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), seed=b"one")
    again, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), seed=b"one")
    other, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), seed=b"two")
    name = inputs["diskName"]
    assert name.startswith("models") and len(name) == len("models") + 8
    assert int(name.removeprefix("models"), 16) >= 0
    assert again["diskName"] == name != other["diskName"]
    assert inputs["__createBeforeDelete"] is True


def test_explicit_name_stays_and_children_copy_the_logical_name(azure):
    inputs, _ = azure.check("compute:Disk", "models", b.disk_inputs("explicit"))
    child, _ = azure.check(
        "network:Subnet", "nodes", b.in_group(virtualNetworkName="vnet", addressPrefix="10.0.0.0/24")
    )
    assert inputs["diskName"] == "explicit"
    assert "__createBeforeDelete" not in inputs
    assert child["subnetName"] == "nodes"
    assert "__createBeforeDelete" not in child


def test_an_old_automatic_name_is_kept(azure):
    first, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), seed=b"one")
    second, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), olds=first, seed=b"two")
    assert second["diskName"] == first["diskName"]
    assert second["__createBeforeDelete"] is True


def test_role_assignments_get_a_uuid_even_when_another_name_is_proposed(azure):
    body = {"principalId": "p", "roleDefinitionId": "r", "scope": "s"}
    proposal = Autonaming(proposed_name="nice-name", mode=Autonaming.PROPOSE)
    inputs, _ = azure.check("authorization:RoleAssignment", "reader", body, autonaming=proposal)
    assert [len(part) for part in inputs["roleAssignmentName"].split("-")] == [8, 4, 4, 4, 12]


@pytest.mark.parametrize("mode", [Autonaming.PROPOSE, Autonaming.ENFORCE])
def test_the_engines_name_is_used(azure, mode):
    wish = Autonaming(proposed_name="huddle-models", mode=mode)
    inputs, _ = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), autonaming=wish)
    assert inputs["diskName"] == "huddle-models"


def test_without_automatic_names_a_missing_name_is_an_error(azure):
    off = Autonaming(mode=Autonaming.DISABLE)
    inputs, failures = azure.check("compute:Disk", "models", b.disk_inputs(diskName=None), autonaming=off)
    assert "diskName" not in inputs
    assert failures == ["[simulated] missing required property 'diskName'"]


def test_location_comes_from_config_and_api_version_is_added(azure):
    inputs, _ = azure.check("compute:Disk", "models", b.disk_inputs())
    assert inputs["location"] == "eastus"
    assert inputs["azureApiVersion"] == "2024-03-02"


def test_location_comes_from_the_resource_group_without_config(azure):
    azure.create("resources:ResourceGroup", "rg", {"resourceGroupName": b.GROUP, "location": "westus3"})
    azure.stub.Configure(provider_pb2.ConfigureRequest())
    inputs, _ = azure.check("compute:Disk", "models", b.disk_inputs())
    unknown, _ = azure.check("compute:Disk", "models", {**b.disk_inputs(), "resourceGroupName": UNKNOWN})
    assert inputs["location"] == "westus3"
    assert unknown["location"] is UNKNOWN


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"creationData": None}, "missing required property 'creationData'"),
        ({"creationData": {}}, "missing required property 'creationData.createOption'"),
        ({"diskSizeGb": 5}, "property 'diskSizeGb' does not exist; did you mean 'diskSizeGB'?"),
        ({"sku": {"nam": "x"}}, "property 'sku.nam' does not exist; did you mean 'name'?"),
        ({"diskSizeGB": "big"}, "'diskSizeGB' should be of type 'integer' but got a string"),
        ({"diskSizeGB": 1.5}, "'diskSizeGB' should be of type 'integer' but got a number"),
        ({"burstingEnabled": 1}, "'burstingEnabled' should be of type 'boolean' but got a number"),
        ({"tags": {"a": 1}}, "'tags.a' should be of type 'string' but got a number"),
        ({"zones": "1"}, "'zones' should be of type 'array' but got a string"),
        ({"osType": "BeOS"}, "'osType' is 'BeOS', allowed are: Windows, Linux"),
    ],
)
def test_shapes_from_the_sdk(azure, change, reason):
    _, failures = azure.check("compute:Disk", "models", {**b.disk_inputs(), **change})
    assert failures == [f"[simulated] {reason}"]


def test_nested_lists_are_checked_with_their_place(azure):
    bad = b.vnet_inputs({"name": "nodes", "addresPrefix": "10.0.0.0/24"})
    _, failures = azure.check("network:VirtualNetwork", "vnet", bad)
    assert "property 'subnets[0].addresPrefix' does not exist" in failures[0]


def test_unknown_values_are_not_judged(azure):
    _, failures = azure.check("compute:Disk", "models", {**b.disk_inputs(), "diskSizeGB": UNKNOWN, "sku": UNKNOWN})
    assert failures == []


def test_a_type_the_sdk_lacks_is_an_error(azure):
    with pytest.raises(grpc.RpcError, match=r"Resource type azure-native:compute:Diskette not found"):
        azure.check("compute:Diskette", "x", {})


@pytest.mark.parametrize(
    ("type_", "inputs", "words"),
    [
        ("resources:ResourceGroup", {"resourceGroupName": "rg."}, "not ending in '.'"),
        ("resources:ResourceGroup", {"resourceGroupName": "r" * 91}, "too long (91): at most 90"),
        ("network:VirtualNetwork", {"virtualNetworkName": "v", "resourceGroupName": "g"}, "too short (1)"),
        (
            "network:NetworkSecurityGroup",
            {"networkSecurityGroupName": "-a", "resourceGroupName": "g"},
            "first a letter",
        ),
        ("compute:VirtualMachine", {"vmName": "_vm", "resourceGroupName": "g"}, "not starting with '_'"),
        ("compute:VirtualMachine", {"vmName": "v" * 65, "resourceGroupName": "g"}, "at most 64"),
        ("storage:StorageAccount", {"accountName": "Has-Caps"}, "lower-case letters and digits"),
        ("keyvault:Vault", {"vaultName": "a--b"}, "single '-'"),
        ("keyvault:Vault", {"vaultName": "k" * 25}, "at most 24"),
        ("apimanagement:ApiManagementService", {"serviceName": "1apim"}, "first a letter"),
        ("apimanagement:ApiManagementService", {"serviceName": "a" * 51}, "at most 50"),
        ("apimanagement:Product", {"productId": "a#b"}, "any characters but"),
        ("managedidentity:UserAssignedIdentity", {"resourceName": "ab"}, "too short (2): at least 3"),
        ("operationalinsights:Workspace", {"workspaceName": "log"}, "at least 4"),
        ("privatedns:PrivateZone", {"privateZoneName": "single"}, "2 to 34 labels"),
    ],
)
def test_name_rules(azure, type_, inputs, words):
    _, failures = azure.check(type_, "x", inputs)
    assert any(words in failure for failure in failures), failures


def test_good_names_pass(azure):
    group = b.group(azure)
    assert group.id.endswith("/resourceGroups/rg-test")
    with pytest.raises(CheckRefusedError, match=r"groupShortName"):
        azure.create("monitor:ActionGroup", "alerts", b.in_group(groupShortName="far-too-long-name", location="global"))
