"""The dev stack's life under the real engine on the simulated Azure. The tests run in order and share one stack."""

from __future__ import annotations

from pulumi import automation

from infra.rehearsal.record import RUN_COMMAND, VM, Change
from tests.engine.life import Life
from tests.unit.cloud_init.rendered import built

NIC = "azure-native:network:NetworkInterface"
DISK = "azure-native:compute:Disk"
VNET = "azure-native:network:VirtualNetwork"
GATEWAY = "azure-native:apimanagement:ApiManagementService"


def test_preview_after_up_is_empty(created: Life) -> None:
    assert created.preview().touched() == {}


def test_refresh_finds_no_drift_and_the_next_preview_is_empty(created: Life) -> None:
    created.refresh()
    assert created.preview().touched() == {}


def test_no_secret_stands_in_any_file(created: Life) -> None:
    """Checkpoint and history, stack file, the simulated Azure's memory, logs: everything that a run leaves behind."""
    outputs = created.sandbox.stack.outputs()
    secrets = {**created.sandbox.secrets, "product key": outputs["product_keys"].value["developers/playground"]}
    files = [path for path in created.sandbox.directory.rglob("*") if path.is_file()]
    assert any("checkpoint" in path.read_text(errors="replace")[:200] for path in files), "no checkpoint was looked at"
    for path in files:
        content = path.read_bytes()
        for name, value in secrets.items():
            assert value.encode() not in content, f"{name} stands in {path.name} in plain text"


def test_outputs_are_ready_to_use(created: Life) -> None:
    outputs = created.sandbox.stack.outputs()
    assert outputs["product_keys"].secret
    assert set(outputs["product_keys"].value) == {"developers/playground"}
    assert outputs["nodes"].value == {"huddleai-h100-node-1": "10.0.0.4", "huddleai-h100-node-2": "10.0.0.5"}
    assert outputs["openai_base_url"].value.endswith("/v1")
    assert outputs["gateway_url"].value.startswith("https://huddleai-dev-")
    assert "--show-secrets" in outputs["curl_command"].value
    assert len(outputs["bundle_digest"].value) == 64
    key = outputs["product_keys"].value["developers/playground"]
    assert key
    assert key not in outputs["curl_command"].value


def test_a_system_prompt_reaches_the_nodes_without_touching_a_vm(created: Life) -> None:
    before = created.sandbox.stack.outputs()["bundle_digest"].value
    created.edit(lambda s: s["serving"]["models"].update({"hl": {"system_prompt": "Answer in verse."}}))
    record = created.up()
    names = {f"huddleai-h100-node-{number}-{it}" for number in (1, 2) for it in ("prepare", "apply")}
    assert record.touched() == dict.fromkeys(names, Change.UPDATE), "a part of the bundle must not be sent again"
    assert names < set(record.of_type(RUN_COMMAND))
    assert created.sandbox.stack.outputs()["bundle_digest"].value != before


def test_another_model_reaches_the_nodes_without_touching_a_vm(created: Life) -> None:
    created.edit(lambda s: s["serving"].update(models={"llama-3.1-8b": {}}))
    touched = created.up().touched_types()
    assert VM not in touched
    assert touched[RUN_COMMAND] == {Change.UPDATE}


def test_a_rotated_secret_is_fetched_by_the_nodes_without_touching_a_vm(created: Life) -> None:
    created.sandbox.stack.set_config("h100-inference:ray_token", automation.ConfigValue("another-token", secret=True))
    touched = created.up().touched_types()
    assert set(touched) == {RUN_COMMAND, "azure-native:keyvault:Secret"}
    assert created.preview().touched() == {}


def test_a_new_image_replaces_the_vms_delete_first_and_keeps_the_rest(created: Life) -> None:
    created.edit(lambda s: s["nodes"]["image"].update(version="24.04.2026090101"))
    assert set(created.preview().of_type(VM).values()) == {Change.REPLACE}, "the preview must say so beforehand"
    operations_before = len(created.azure.operations)
    record = created.up()
    assert set(record.of_type(VM).values()) == {Change.REPLACE}
    for kept in (NIC, DISK, VNET, GATEWAY):
        assert kept not in record.touched_types()
    for node in created.sandbox.stack.outputs()["nodes"].value:
        done = [
            operation.kind
            for operation in created.azure.operations[operations_before:]
            if operation.name == node and operation.token == VM and operation.kind in ("create", "delete")
        ]
        assert done == ["delete", "create"], f"{node} was not deleted first"


def test_the_bundle_is_applied_again_on_a_replaced_vm(created: Life) -> None:
    run = [r.name for r in created.azure.of_type("compute:VirtualMachineRunCommandByVirtualMachine")]
    assert sorted(run) == sorted(
        ["huddle-prepare", "huddle-apply", *(f"huddle-{piece.name}" for piece in built("dev").pieces)] * 2
    )
    assert created.preview().touched() == {}


def test_nodes_go_from_two_to_one_to_three(created: Life) -> None:
    created.grant_vcpus(120)
    created.edit(lambda s: s["nodes"].update(count=1))
    record = created.up()
    assert list(record.of_type(VM).values()).count(Change.DELETE) == 1
    created.edit(lambda s: s["nodes"].update(count=3))
    record = created.up()
    vms = record.of_type(VM)
    assert sorted(change.value for change in vms.values()) == ["create", "create", "same"]
    assert len(created.azure.of_type("compute:VirtualMachine")) == 3
    assert created.preview().touched() == {}


def test_destroy_leaves_an_empty_subscription(created: Life) -> None:
    created.destroy()
    assert created.azure.resources == {}
    assert created.sandbox.resources() == [] or all(
        r["type"].startswith("pulumi:") for r in created.sandbox.resources()
    )
