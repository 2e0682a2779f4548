"""Create, read, update, delete, import, preview - for any type."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from simulator.azure.errors import SimulatorError
from simulator.azure.rules import rules_for
from simulator.azure.state.store import OperationRecord, Resource, Store
from simulator.plugin.values import UNKNOWN
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import PartialError, RefusedError


def test_create_is_refused_when_the_name_exists(azure):
    b.group(azure)
    b.disk(azure)
    with pytest.raises(
        RefusedError, match=r"\[simulated\] cannot create already existing resource '/subscriptions/.*/disks/models'"
    ):
        b.disk(azure)


def test_the_group_must_exist(azure):
    with pytest.raises(
        RefusedError, match=r'Status=404 Code="ResourceGroupNotFound" Message="Resource group \'rg-test\''
    ):
        b.disk(azure)


def test_the_parent_must_exist(azure):
    b.group(azure)
    body = b.in_group(virtualNetworkName="vnet", subnetName="nodes", addressPrefix="10.0.0.0/24")
    with pytest.raises(RefusedError, match=r"ParentResourceNotFound"):
        azure.create("network:Subnet", "nodes", body)


def test_a_reference_must_exist(azure):
    b.group(azure)
    vnet = b.vnet(azure)
    with pytest.raises(RefusedError, match=r"InvalidResourceReference.*subnets/nowhere"):
        azure.create("network:NetworkInterface", "nic", b.nic_inputs(f"{vnet.id}/subnets/nowhere"))


def test_a_reference_into_another_subscription_is_not_judged(azure):
    b.group(azure)
    workspace = (
        "/subscriptions/99999999-0000-0000-0000-000000000000/resourceGroups/p/providers/Microsoft.X/workspaces/w"
    )
    body = b.in_group(resourceName="insights", kind="web", applicationType="web", workspaceResourceId=workspace)
    assert azure.create("applicationinsights:Component", "insights", body).id


def test_an_open_enum_is_judged_by_azure_not_by_check(azure):
    b.group(azure)
    body = b.disk_inputs(networkAccessPolicy="AllowSome")
    assert azure.preview("compute:Disk", "models", body)
    with pytest.raises(
        RefusedError, match=r"BadRequest.*networkAccessPolicy' has the value 'AllowSome'; allowed: AllowAll"
    ):
        azure.create("compute:Disk", "models", body)


def test_outputs_are_shaped_like_a_get(azure):
    b.group(azure)
    disk = b.disk(azure)
    assert disk.outputs["name"] == "models"
    assert disk.outputs["type"] == "Microsoft.Compute/disks"
    assert disk.outputs["azureApiVersion"] == "2024-03-02"
    assert disk.outputs["provisioningState"] == "Succeeded"
    assert disk.outputs["tier"] == "P30"
    assert "resourceGroupName" not in disk.outputs and "diskName" not in disk.outputs


def test_update_needs_a_live_resource(azure):
    b.group(azure)
    disk = b.disk(azure)
    azure.delete(disk)
    with pytest.raises(RefusedError, match=r"ResourceNotFound"):
        azure.change(disk, tags={"a": "b"})


def test_a_tracked_resource_cannot_move(azure):
    b.group(azure)
    disk = b.disk(azure)
    with pytest.raises(RefusedError, match=r"InvalidResourceLocation.*already exists in location 'eastus'"):
        azure.change(disk, location="westus")


def test_delete_twice_is_fine(azure):
    b.group(azure)
    disk = b.disk(azure)
    azure.delete(disk)
    azure.delete(disk)
    assert azure.refresh(disk) is None


def test_deleting_the_group_deletes_what_is_in_it(azure):
    group = b.group(azure)
    b.disk(azure)
    azure.delete(group)
    assert azure.state.resources == {}


def test_preview_knows_inputs_only(azure):
    outputs = azure.preview("network:VirtualNetwork", "vnet", b.vnet_inputs())
    assert outputs["addressSpace"]["addressPrefixes"] == ["10.0.0.0/16"]
    assert outputs["subnets"][0]["addressPrefix"] == "10.0.0.0/24"
    assert outputs["subnets"][0]["id"] is UNKNOWN
    assert outputs["resourceGuid"] is UNKNOWN and outputs["name"] is UNKNOWN and outputs["type"] is UNKNOWN
    assert azure.state.resources == {}


def test_preview_of_an_update_keeps_name_and_location(azure):
    b.group(azure)
    vnet = b.vnet(azure)
    outputs = azure.preview_update(vnet, b.vnet_inputs(tags={"a": "b"}))
    assert (outputs["name"], outputs["location"], outputs["tags"]) == ("vnet", "eastus", {"a": "b"})
    assert outputs["resourceGuid"] is UNKNOWN


def test_refresh_without_drift_changes_no_input(azure):
    b.group(azure)
    vnet = b.vnet(azure)
    fresh = azure.refresh(vnet)
    assert fresh.inputs == vnet.inputs and fresh.outputs == vnet.outputs
    assert not azure.diff(fresh, b.vnet_inputs()).changes


def test_refresh_copies_drift_into_the_inputs(azure):
    b.group(azure)
    disk = b.disk(azure, tags={"owner": "a"})
    with azure.cloud.store.transaction() as state:
        state.get(disk.id).properties["tags"] = {"owner": "somebody else"}
    fresh = azure.refresh(disk)
    assert fresh.inputs["tags"] == {"owner": "somebody else"}
    assert azure.diff(fresh, {**disk.inputs}).detailed.keys() == {"tags.owner"}


def test_refresh_leaves_standalone_children_out_of_the_inputs(azure):
    b.group(azure)
    body = {key: value for key, value in b.vnet_inputs().items() if key != "subnets"}
    vnet = azure.create("network:VirtualNetwork", "vnet", body)
    child = b.in_group(virtualNetworkName="vnet", subnetName="nodes", addressPrefix="10.0.0.0/24")
    azure.create("network:Subnet", "nodes", child)
    fresh = azure.refresh(vnet)
    assert fresh.outputs["subnets"][0]["name"] == "nodes"
    assert "subnets" not in fresh.inputs


def test_import_reads_inputs_from_the_id_and_the_body(azure):
    b.group(azure)
    disk = b.disk(azure)
    found = azure.import_("compute:Disk", "models", disk.id.upper().replace("/SUBSCRIPTIONS", "/subscriptions"))
    assert found.id == disk.id
    assert found.inputs["diskName"] == "models" and found.inputs["resourceGroupName"] == b.GROUP
    assert found.inputs["diskSizeGB"] == 1024 and "uniqueId" not in found.inputs
    with pytest.raises(RefusedError, match=r"unable to parse resource ID"):
        azure.import_("network:VirtualNetwork", "vnet", disk.id)


def test_partial_failure_keeps_the_resource_for_the_next_update(azure):
    azure.set_faults({"faults": [{"kind": "partial", "match": {"type": "compute:Disk"}, "times": 1}]})
    b.group(azure)
    with pytest.raises(PartialError) as caught:
        b.disk(azure)
    half = caught.value.resource
    assert half.id.endswith("/disks/models") and half.outputs["provisioningState"] == "Failed"
    assert caught.value.reasons == [
        '[simulated] Status=200 Code="InternalExecutionError" '
        'Message="An internal execution error occurred. Please retry later."'
    ]
    assert azure.change(half, tags={"again": "yes"}).outputs["provisioningState"] == "Succeeded"


def test_a_timeout_leaves_a_partial_resource(azure):
    azure.set_faults({"faults": [{"kind": "slow", "delay_s": 30, "match": {"type": "compute:Disk"}}]})
    b.group(azure)
    with pytest.raises(PartialError, match=r"operation timed out"):
        azure.create("compute:Disk", "models", b.disk_inputs(), timeout=0.05)
    assert azure.state.operations[-1].status == "partial"


def test_generic_types_work_with_sdk_checks_only(azure):
    b.group(azure)
    made = azure.create("network:RouteTable", "routes", b.in_group(routeTableName="routes"))
    assert made.outputs["type"] == "Microsoft.Network/routeTables"
    derived = azure.create("containerservice:ManagedCluster", "aks", b.in_group(resourceName="aks", dnsPrefix="aks"))
    assert derived.id.endswith("/managedClusters/aks")
    assert azure.refresh(derived).inputs == derived.inputs


def test_the_operation_log_has_start_end_and_outcome(azure):
    b.group(azure)
    disk = b.disk(azure)
    with pytest.raises(RefusedError):
        b.disk(azure)
    azure.delete(disk)
    log = [(record.kind, record.name, record.status) for record in azure.state.operations]
    assert log == [
        ("create", "rg-test", "succeeded"),
        ("create", "models", "succeeded"),
        ("create", "models", "failed"),
        ("delete", "models", "succeeded"),
    ]
    assert all(record.end >= record.start for record in azure.state.operations)
    assert "already existing" in azure.state.operations[2].error


def test_two_processes_share_one_state_file(tmp_path):
    path = tmp_path / "state.json"
    command = [sys.executable, "-m", "tests.simulator.azure.write_many", str(path)]
    root = Path(__file__).parents[3]
    processes = [subprocess.Popen([*command, prefix], cwd=root) for prefix in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(Store(path).read().resources) == 50
    assert json.loads(path.read_text())["simulated"] is True
    assert [item.name for item in tmp_path.iterdir() if item.suffix == ".tmp"] == []


def test_the_time_scale_makes_operations_take_time(azure):
    azure.cloud.settings = replace(azure.cloud.settings, time_scale=0.01)
    b.group(azure)
    record = azure.state.operations[0]
    typical = rules_for("resources:ResourceGroup").typical_seconds
    assert record.end - record.start >= typical * 0.01


def test_without_any_fault_parallel_writes_of_one_network_still_meet(azure):
    azure.cloud.settings = replace(azure.cloud.settings, hold_s=0.5)
    b.group(azure)
    b.vnet(azure)
    together = Barrier(2)

    def write(name, prefix):
        together.wait()
        body = b.in_group(virtualNetworkName="vnet", subnetName=name, addressPrefix=prefix)
        return azure.create("network:Subnet", name, body)

    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(write, "one", "10.0.1.0/24"), pool.submit(write, "two", "10.0.2.0/24")]
    assert all(future.result().id for future in futures), "the provider's patience helps"
    refused = [record.error for record in azure.state.operations if record.status == "failed"]
    assert refused and all("AnotherOperationInProgress" in error for error in refused)


def test_a_failing_transaction_changes_nothing(tmp_path):
    store = Store(tmp_path / "state.json")
    with store.transaction() as state:
        state.put(Resource(id="/a", token="azure-native:a:B", properties={}))
    with pytest.raises(ZeroDivisionError), store.transaction() as state:
        state.put(Resource(id="/b", token="azure-native:a:B", properties={}))
        raise ZeroDivisionError
    with store.reading() as state:
        assert set(state.resources) == {"/a"}


def test_operations_of_a_dead_process_block_nobody(tmp_path):
    store = Store(tmp_path / "state.json")
    with store.transaction() as state:
        state.operations.append(OperationRecord(1, "create", "t", "/a", "a", "", 0.0, pid=2**22 + 1))
        assert state.running() == []


def test_a_foreign_state_file_is_named_and_left_alone(tmp_path):
    path = tmp_path / "state.json"
    path.write_text('{"version": 3}')
    with pytest.raises(SimulatorError, match=r"not a state file of the simulator.*AZURE_SIMULATOR_STATE"):
        Store(path).read()
    assert path.read_text() == '{"version": 3}'
