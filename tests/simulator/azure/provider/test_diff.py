"""Diff: old inputs against new inputs; what replaces and what only seems harmless."""

import hypothesis
import pytest
from hypothesis import strategies as st
from pulumi.runtime.proto import provider_pb2

from simulator.azure.provider.diff import diff
from simulator.azure.sdk import schema
from simulator.plugin.values import UNKNOWN, Secret
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import Made

P = provider_pb2.PropertyDiff


def made(azure, type_, inputs):
    return Made(type_, "x", "id", azure.checked(type_, "x", inputs))


def test_no_change(azure):
    disk = made(azure, "compute:Disk", b.disk_inputs())
    result = azure.diff(disk, b.disk_inputs())
    assert not result.changes and result.diffs == [] and not result.delete_before_replace


def test_location_ignores_case_and_blanks(azure):
    disk = made(azure, "compute:Disk", b.disk_inputs(location="East US"))
    assert not azure.diff(disk, b.disk_inputs(location="eastus")).changes


def test_a_name_replaces_and_deletes_first(azure):
    disk = made(azure, "compute:Disk", b.disk_inputs())
    result = azure.diff(disk, b.disk_inputs("other"))
    assert result.replaces == ["diskName"] and result.delete_before_replace
    assert result.detailed == {"diskName": P.UPDATE_REPLACE}


def test_a_random_name_may_be_created_first(azure):
    disk = made(azure, "compute:Disk", b.disk_inputs(diskName=None))
    result = azure.diff(disk, {**b.disk_inputs(diskName=None), "resourceGroupName": "elsewhere"})
    assert result.replaces == ["resourceGroupName"] and not result.delete_before_replace


@pytest.mark.parametrize(
    ("type_", "before", "after", "replaces"),
    [
        ("network:VirtualNetwork", b.vnet_inputs(), b.vnet_inputs(location="westus"), ["location"]),
        (
            "resources:ResourceGroup",
            {"resourceGroupName": "g"},
            {"resourceGroupName": "g", "location": "westus"},
            ["location"],
        ),
        (
            "apimanagement:ApiManagementService",
            b.gateway_inputs(),
            b.gateway_inputs(location="westus"),
            ["location"],
        ),
        (
            "network:PublicIPAddress",
            b.in_group(publicIpAddressName="p", sku={"name": "Basic"}),
            b.in_group(publicIpAddressName="p", sku={"name": "Standard"}),
            ["sku"],
        ),
        (
            "authorization:RoleAssignment",
            {"roleAssignmentName": "n", "scope": "/s", "principalId": "a", "roleDefinitionId": "r"},
            {"roleAssignmentName": "n", "scope": "/s", "principalId": "b", "roleDefinitionId": "r"},
            ["principalId"],
        ),
        (
            "storage:FileShare",
            b.in_group(accountName="acc", shareName="share", enabledProtocols="SMB"),
            b.in_group(accountName="acc", shareName="share", enabledProtocols="NFS"),
            ["enabledProtocols"],
        ),
        (
            "network:PrivateEndpoint",
            b.in_group(privateEndpointName="pe", subnet={"id": "/a"}),
            b.in_group(privateEndpointName="pe", subnet={"id": "/b"}),
            ["subnet"],
        ),
    ],
)
def test_force_new(azure, type_, before, after, replaces):
    result = azure.diff(made(azure, type_, before), after)
    assert result.replaces == replaces
    assert result.delete_before_replace


@pytest.mark.parametrize(
    "change",
    [
        {"zones": ["2"]},
        {"location": "westus"},
        {"osProfile": {"customData": "bmV3"}},
        {"storageProfile": {"imageReference": {"version": "new"}}},
    ],
)
def test_a_vm_is_never_replaced_by_the_provider(azure, change):
    vm = made(azure, "compute:VirtualMachine", b.vm_inputs("/nic"))
    result = azure.diff(vm, {**vm.inputs, **change})
    assert result.changes and result.replaces == [] and not result.delete_before_replace


def test_detailed_paths_and_kinds(azure):
    vnet = made(azure, "network:VirtualNetwork", b.vnet_inputs(tags={"a": "1", "b": "1"}))
    new = b.vnet_inputs(b.subnet("nodes", "10.0.9.0/24"), b.subnet("more", "10.0.2.0/24"), tags={"a": "2", "c-d": "1"})
    result = azure.diff(vnet, new)
    assert result.detailed == {
        "subnets[0].addressPrefix": P.UPDATE,
        "subnets[1]": P.ADD,
        "tags.a": P.UPDATE,
        "tags.b": P.DELETE,
        "tags.c-d": P.ADD,
    }
    assert result.diffs == ["subnets", "tags"]


def test_secrets_compare_by_value_and_unknown_is_a_change():
    resource = schema.resource("azure-native:keyvault:Secret")
    old = {"properties": {"value": Secret("a")}}
    assert diff(resource, old, {"properties": {"value": "a"}}).changes == ()
    assert diff(resource, old, {"properties": {"value": Secret("b")}}).properties == ["properties"]
    assert diff(resource, old, {"properties": {"value": UNKNOWN}}).properties == ["properties"]


LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.text("abc", max_size=2)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
)


@hypothesis.given(st.dictionaries(st.sampled_from(["sku", "tags", "zones"]), VALUES))
def test_nothing_differs_from_itself(inputs):
    resource = schema.resource("azure-native:compute:Disk")
    assert diff(resource, inputs, inputs).changes == ()


@hypothesis.given(
    st.dictionaries(st.sampled_from(["sku", "tags", "zones"]), VALUES),
    st.dictionaries(st.sampled_from(["sku", "tags", "zones"]), VALUES),
)
def test_every_detailed_path_starts_with_a_changed_property(old, new):
    result = diff(schema.resource("azure-native:compute:Disk"), old, new)
    tops = {change.path.split(".")[0].split("[")[0] for change in result.changes}
    assert tops == set(result.properties)
