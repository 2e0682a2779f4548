"""One thing wrong at a time, in bodies that are right: each is refused, with the code of its resource provider."""

import copy
from dataclasses import dataclass
from typing import Any

import pytest

from simulator.azure.cloud.subscription import ResourceRequest
from simulator.azure.contracts import refusal
from simulator.azure.contracts.faults import Kind
from simulator.azure.errors import ArmError
from simulator.azure.sdk import schema
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import Azure
from tests.simulator.azure.gateway_builders import api_inputs, subscription_inputs

REMOVED = object()
HERE = {"location": "eastus2"}
RIGHT: dict[str, dict[str, Any]] = {
    "compute:Disk": b.disk_inputs(**HERE),
    "compute:VirtualMachine": b.vm_inputs("/nic", **HERE),
    "compute:VirtualMachineRunCommandByVirtualMachine": b.run_command_inputs(**HERE),
    "network:VirtualNetwork": b.vnet_inputs(**HERE),
    "network:NetworkSecurityGroup": b.in_group(
        networkSecurityGroupName="nsg", securityRules=[b.rule("a", 100)], **HERE
    ),
    "network:PublicIPAddress": b.in_group(publicIpAddressName="ip", sku={"name": "Standard"}, **HERE),
    "keyvault:Vault": {**b.vault_inputs(enableSoftDelete=True, softDeleteRetentionInDays=7), **HERE},
    "keyvault:Secret": b.in_group(vaultName="kv", secretName="key", properties={"value": "x"}),
    "apimanagement:ApiManagementService": b.gateway_inputs(**HERE),
    "apimanagement:Product": b.in_gateway(productId="team", displayName="Team", state="published"),
    "apimanagement:Subscription": subscription_inputs("team"),
    "apimanagement:Api": api_inputs(),
    "apimanagement:NamedValue": b.in_gateway(namedValueId="key", displayName="key", value="x", secret=True),
    "apimanagement:Diagnostic": b.in_gateway(diagnosticId="azuremonitor", loggerId="/l", sampling={"percentage": 10}),
    "privatedns:PrivateZone": b.in_group(privateZoneName="azure-api.net", location="global"),
    "privatedns:VirtualNetworkLink": b.in_group(
        privateZoneName="azure-api.net",
        virtualNetworkLinkName="vnet",
        location="global",
        virtualNetwork={"id": "/vnet"},
    ),
    "operationalinsights:Workspace": b.in_group(workspaceName="logs", retentionInDays=30, **HERE),
    "monitor:ActionGroup": b.in_group(actionGroupName="ops", groupShortName="ops", enabled=True, location="global"),
    "storage:StorageAccount": b.in_group(accountName="files", kind="FileStorage", sku={"name": "Premium_LRS"}, **HERE),
    "storage:FileShare": b.in_group(accountName="files", shareName="models", shareQuota=100, enabledProtocols="NFS"),
    "authorization:RoleAssignment": {
        "scope": "/subscriptions/0",
        "roleAssignmentName": "11111111-1111-1111-1111-111111111111",
        "principalId": "p",
        "roleDefinitionId": "/r",
    },
}
"""Inputs of azure-native that have no fault."""


@dataclass(frozen=True)
class Mutation:
    """`path` names an input; `words` is what the refusal says of it."""

    type: str
    path: str
    value: Any
    kind: Kind
    code: str
    words: str

    def __str__(self) -> str:
        return f"{self.type}-{self.path}-{self.kind.value}"

    @property
    def inputs(self) -> dict[str, Any]:
        inputs = copy.deepcopy(RIGHT[self.type])
        *way, last = self.path.split(".")
        place: Any = inputs
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        if self.value is REMOVED:
            del place[last]
        else:
            place[last] = self.value
        return inputs


APIM, NETWORK, COMPUTE, OTHERS = "ValidationError", "InvalidRequestFormat", "BadRequest", "InvalidRequestContent"
VM, GATEWAY, NSG = "compute:VirtualMachine", "apimanagement:ApiManagementService", "network:NetworkSecurityGroup"
MUTATIONS = [
    Mutation("compute:Disk", "colour", "red", Kind.UNKNOWN, COMPUTE, "'colour' does not exist"),
    Mutation(
        VM, "hardwareProfile.vmsize2", "x", Kind.UNKNOWN, COMPUTE, "vmsize2' does not exist; did you mean 'vmSize'"
    ),
    Mutation(VM, "storageProfile.osDisk.cachng", "None", Kind.UNKNOWN, COMPUTE, "osDisk.cachng' does not exist"),
    Mutation(
        "keyvault:Vault", "properties.sofDelete", True, Kind.UNKNOWN, OTHERS, "properties.sofDelete' does not exist"
    ),
    Mutation(
        NSG, "securityRules.0.prioritty", 1, Kind.UNKNOWN, NETWORK, r"securityRules\[0\].prioritty' does not exist"
    ),
    Mutation("compute:Disk", "timeCreated", "now", Kind.READ_ONLY, COMPUTE, "properties.timeCreated' is read-only"),
    Mutation(GATEWAY, "gatewayUrl", "https://a", Kind.READ_ONLY, APIM, "properties.gatewayUrl' is read-only"),
    Mutation("keyvault:Secret", "properties.secretUri", "x", Kind.READ_ONLY, OTHERS, "secretUri' is read-only"),
    Mutation("network:VirtualNetwork", "etag", "x", Kind.READ_ONLY, NETWORK, "'etag' is read-only"),
    Mutation("compute:Disk", "creationData", REMOVED, Kind.MISSING, COMPUTE, "properties.creationData' is required"),
    Mutation(GATEWAY, "publisherEmail", REMOVED, Kind.MISSING, APIM, "properties.publisherEmail' is required"),
    Mutation(NSG, "securityRules.0.priority", REMOVED, Kind.MISSING, NETWORK, "properties.priority' is required"),
    Mutation("keyvault:Vault", "location", REMOVED, Kind.MISSING, OTHERS, "'location' is required"),
    Mutation("authorization:RoleAssignment", "principalId", REMOVED, Kind.MISSING, OTHERS, "principalId' is required"),
    Mutation(
        "compute:Disk", "sku.name", "Fast_LRS", Kind.VALUE, COMPUTE, "sku.name' has the value 'Fast_LRS'; allowed: S"
    ),
    Mutation(VM, "storageProfile.osDisk.deleteOption", "Keep", Kind.VALUE, COMPUTE, "allowed: Delete, Detach"),
    Mutation(
        NSG, "securityRules.0.protocol", "Http", Kind.VALUE, NETWORK, r"protocol' has the value 'Http'; allowed: Tcp"
    ),
    Mutation(GATEWAY, "sku.name", "PremiumV3", Kind.VALUE, APIM, "sku.name' has the value 'PremiumV3'"),
    Mutation("apimanagement:Product", "state", "draft", Kind.VALUE, APIM, "allowed: notPublished, published"),
    Mutation("storage:FileShare", "enabledProtocols", "FTP", Kind.VALUE, OTHERS, "allowed: NFS, SMB|allowed: SMB, NFS"),
    Mutation(GATEWAY, "serviceName", "a" * 51, Kind.LENGTH, APIM, "'name' has 51 characters; allowed: 1 to 50"),
    Mutation(GATEWAY, "publisherName", "a" * 101, Kind.LENGTH, APIM, "has 101 characters; allowed: at most 100"),
    Mutation("apimanagement:Product", "description", "a" * 1001, Kind.LENGTH, APIM, "has 1001 characters"),
    Mutation("apimanagement:Product", "displayName", "", Kind.LENGTH, APIM, "has 0 characters; allowed: 1 to 300"),
    Mutation("apimanagement:Subscription", "displayName", "a" * 101, Kind.LENGTH, APIM, "allowed: 1 to 100"),
    Mutation(
        "apimanagement:NamedValue", "value", "a" * 4097, Kind.LENGTH, APIM, "4097 characters; allowed: at most 4096"
    ),
    Mutation("monitor:ActionGroup", "groupShortName", "thirteen-long", Kind.LENGTH, OTHERS, "at most 12"),
    Mutation("keyvault:Vault", "properties.tenantId", "f" * 36, Kind.PATTERN, OTHERS, "tenantId' must match"),
    Mutation("keyvault:Vault", "vaultName", "with_underscore", Kind.PATTERN, OTHERS, "'name' must match"),
    Mutation("keyvault:Secret", "secretName", "no spaces", Kind.PATTERN, OTHERS, "'name' must match"),
    Mutation("apimanagement:NamedValue", "displayName", "no spaces", Kind.PATTERN, APIM, "displayName' must match"),
    Mutation("apimanagement:Diagnostic", "sampling.percentage", 101, Kind.RANGE, APIM, "is 101; allowed: 0 to 100"),
    Mutation("network:PublicIPAddress", "idleTimeoutInMinutes", "4", Kind.TYPE, NETWORK, "must be a number"),
    Mutation("compute:Disk", "diskSizeGB", "large", Kind.TYPE, COMPUTE, "diskSizeGB' must be a number"),
    Mutation("apimanagement:Api", "subscriptionRequired", "yes", Kind.TYPE, APIM, "must be true or false"),
    Mutation("network:VirtualNetwork", "addressSpace", ["10.0.0.0/16"], Kind.TYPE, NETWORK, "must be an object"),
    Mutation("network:VirtualNetwork", "subnets", {"name": "a"}, Kind.TYPE, NETWORK, "must be a list"),
    Mutation("operationalinsights:Workspace", "retentionInDays", True, Kind.TYPE, OTHERS, "must be a number"),
]


def refused(key: str, inputs: dict[str, Any]) -> ArmError:
    with pytest.raises(ArmError) as caught:
        refusal.require(schema.resource(f"azure-native:{key}"), inputs)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("key", RIGHT)
def test_a_right_body_has_no_fault(key: str) -> None:
    refusal.require(schema.resource(f"azure-native:{key}"), RIGHT[key])


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_mutation_is_refused(mutation: Mutation) -> None:
    found = refusal.faults_in(schema.resource(f"azure-native:{mutation.type}"), mutation.inputs)
    assert [fault.kind for fault in found] == [mutation.kind]
    error = refused(mutation.type, mutation.inputs)
    assert error.code == mutation.code
    with pytest.raises(ArmError, match=mutation.words):
        raise error


def test_every_way_to_be_wrong_is_tried() -> None:
    assert {mutation.kind for mutation in MUTATIONS} == set(Kind)


def test_every_fault_is_told_at_once() -> None:
    inputs = {**RIGHT["compute:Disk"], "colour": "red", "diskSizeGB": "large"}
    assert "does not exist" in refused("compute:Disk", inputs).message
    assert "must be a number" in refused("compute:Disk", inputs).message


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("keyvault:Secret", "BadParameter"),
        ("apimanagement:ApiManagementService", "InvalidParameters"),
        ("privatedns:PrivateZone", "BadRequest"),
        ("privatedns:VirtualNetworkLink", "BadRequest"),
    ],
)
def test_some_types_take_15_tags(key: str, code: str) -> None:
    tags = {f"tag-{number}": "x" for number in range(16)}
    assert refused(key, {**RIGHT[key], "tags": tags}).code == code
    del tags["tag-0"]
    refusal.require(schema.resource(f"azure-native:{key}"), {**RIGHT[key], "tags": tags})


@pytest.mark.parametrize(
    ("key", "path", "value"), [(VM, "hardwareProfile.vmSize", "Standard_X1"), (GATEWAY, "sku.name", "PremiumV2")]
)
def test_what_azure_takes_beyond_its_lists_is_taken(key: str, path: str, value: str) -> None:
    refusal.require(schema.resource(f"azure-native:{key}"), b.merged(RIGHT[key], path, value))


def test_a_type_without_contract_is_not_judged() -> None:
    refusal.require(schema.resource("azure-native:network:RouteTable"), {"routeTableName": "r", "colour": "red"})


def test_create_and_update_are_both_judged(ground: Azure) -> None:
    """Past Check, which the real provider's own look at types stands for."""
    made = b.disk(ground)
    kind = schema.resource("azure-native:compute:Disk")
    wrong = {**made.inputs, "colour": "red"}
    with pytest.raises(ArmError, match="'colour' does not exist"):
        ground.cloud.update(ResourceRequest(kind, "urn::disk", wrong, id=made.id, old_inputs=made.inputs))
    with pytest.raises(ArmError, match="'colour' does not exist"):
        ground.cloud.create(ResourceRequest(kind, "urn::other", {**wrong, "diskName": "other"}))
    assert ground.state.operations[-1].status == "failed"
