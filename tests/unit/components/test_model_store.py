from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pulumi
import pytest

from components.model_store import ModelStore, ModelStoreArgs
from plan.azure.model import AzurePlan
from simulator.plugin.values import UNKNOWN
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recording, run_program

DISK, ACCOUNT, SHARE = "compute:Disk", "storage:StorageAccount", "storage:FileShare"
ENDPOINT = "network:PrivateEndpoint"
SUBNET_ID = arm_id("Microsoft.Network/virtualNetworks", "vnet") + "/subnets/endpoints"
ZONE_ID = arm_id("Microsoft.Network/privateDnsZones", "privatelink.file.core.windows.net")


def build(built: AzurePlan, preview: bool = False, file_zone_id: str | None = ZONE_ID) -> Recording:
    def program() -> Mapping[str, Any]:
        store = ModelStore(
            "store",
            ModelStoreArgs(
                scope=scope(built),
                store=built.store,
                zone=built.compute.zone,
                endpoint_subnet_id=SUBNET_ID,
                file_zone_id=file_zone_id,
            ),
        )
        ready = pulumi.Output.all(*(resource.urn for resource in store.ready))
        return {"disk": store.disk_id or "none", "nfs": store.nfs_source or "none", "ready": ready}

    return run_program(program, preview=preview)


@cache
def dev(preview: bool = False) -> Recording:
    return build(plan(), preview)


@cache
def files(stack: str = "dev", preview: bool = False) -> Recording:
    """The stack with an NFS share, without the settings that belong to a disk."""
    return build(_files_plan(stack), preview)


def _files_plan(stack: str) -> AzurePlan:
    return plan(stack, model_store={"kind": "azure-files", "sku": None, "iops": None, "mbps": None})


def test_the_disk_is_shared_and_reached_through_its_vms_only(preview: bool) -> None:
    recording = dev(preview)
    disk = recording.one(DISK)
    assert disk["diskName"] == "huddleai-dev-models"
    assert (disk["diskSizeGB"], disk["sku.name"], disk["maxShares"]) == (1024, "Premium_LRS", 5)
    assert disk["creationData.createOption"] == "Empty"
    assert disk["networkAccessPolicy"] == "DenyAll"
    assert disk["publicNetworkAccess"] == "Disabled"
    assert disk["burstingEnabled"] is None
    assert recording.exports["disk"] == (UNKNOWN if preview else disk.id)
    assert recording.exports["nfs"] == "none"
    assert not recording.of(ACCOUNT)
    assert not recording.of(ENDPOINT)


def test_performance_is_stated_only_where_it_can_be_bought() -> None:
    assert (dev().one(DISK)["diskIOPSReadWrite"], dev().one(DISK)["diskMBpsReadWrite"]) == (None, None)
    prod = build(plan("prod")).one(DISK)
    assert (prod["diskIOPSReadWrite"], prod["diskMBpsReadWrite"], prod["maxShares"]) == (8000, 1200, 15)
    assert prod["sku.name"] == "PremiumV2_LRS"
    asked_for = replace(plan(), store=replace(plan().store, iops=9000, mbps=900))
    refused = build(asked_for).one(DISK)
    assert (refused["diskIOPSReadWrite"], refused["diskMBpsReadWrite"]) == (None, None)


@pytest.mark.parametrize(("sku", "zones"), [("Premium_LRS", ["1"]), ("Premium_ZRS", None), ("StandardSSD_ZRS", None)])
def test_the_disk_is_in_the_nodes_zone_unless_it_is_in_all(sku: str, zones: list[str] | None) -> None:
    assert build(plan(nodes={"zone": "1"}, model_store={"sku": sku})).one(DISK)["zones"] == zones
    assert build(plan(model_store={"sku": sku})).one(DISK)["zones"] is None


def test_data_is_protected_in_prod_and_destroyable_in_dev() -> None:
    assert not dev().one(DISK).protect
    assert build(plan("prod")).one(DISK).protect
    for stack, protect in (("dev", False), ("prod", True)):
        recording = files(stack)
        assert recording.one(ACCOUNT).protect is protect
        assert recording.one(SHARE).protect is protect
    for recording in (dev(), files()):
        assert not any(resource.retain_on_delete for resource in recording.resources)


def test_a_share_speaks_nfs_to_the_private_network_alone(preview: bool) -> None:
    recording = files(preview=preview)
    account, share = recording.one(ACCOUNT), recording.one(SHARE)
    names = plan().names
    assert account["accountName"] == names.storage_account
    assert (account["kind"], account["sku.name"]) == ("FileStorage", "Premium_LRS")
    assert account["publicNetworkAccess"] == "Disabled"
    assert account["networkRuleSet.defaultAction"] == "Deny"
    assert account["enableHttpsTrafficOnly"] is False  # "secure transfer required" refuses NFS
    assert account["allowSharedKeyAccess"] is False
    assert account["allowBlobPublicAccess"] is False
    assert account["minimumTlsVersion"] == "TLS1_2"
    assert (share["shareName"], share["enabledProtocols"], share["shareQuota"]) == ("models", "NFS", 1024)
    assert share["rootSquash"] == "NoRootSquash"
    host = f"{names.storage_account}.file.core.windows.net"
    assert recording.exports["nfs"] == f"{host}:/{names.storage_account}/models"
    assert recording.exports["disk"] == "none"
    assert not recording.of(DISK)


def test_a_shares_endpoint_is_ready_before_nodes_mount_it(preview: bool) -> None:
    recording = files(preview=preview)
    endpoint, group = recording.one(ENDPOINT), recording.one("network:PrivateDnsZoneGroup")
    assert endpoint["privateLinkServiceConnections.0.groupIds"] == ["file"]
    assert endpoint["subnet.id"] == SUBNET_ID
    assert group["privateDnsZoneConfigs.0.privateDnsZoneId"] == ZONE_ID
    if not preview:
        assert set(recording.exports["ready"]) == {recording.one(SHARE).urn, group.urn}
        assert dev().exports["ready"] == []


def test_a_share_whose_name_azure_policy_writes_has_an_endpoint_and_no_zone_group() -> None:
    recording = build(_files_plan("dev"), file_zone_id=None)
    assert recording.of("network:PrivateDnsZoneGroup") == []
    assert recording.one(ENDPOINT)["privateLinkServiceConnections.0.groupIds"] == ["file"]
