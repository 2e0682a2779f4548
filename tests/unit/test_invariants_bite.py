"""Each invariant on a small program that breaks it: a check that can't fail is worth nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pulumi
import pytest
from pulumi_azure_native import apimanagement, compute, network

from infra.program import load_plan
from tests.unit import invariants
from tests.unit.recording import Recording, run_program

RG = {"resource_group_name": "huddleai-dev-rg"}


def _vm(name: str, disk: bool = True, opts: pulumi.ResourceOptions | None = None) -> compute.VirtualMachine:
    data = [{"lun": 0, "createOption": "Attach", "managedDisk": {"id": "/disk"}, "caching": "None"}]
    return compute.VirtualMachine(
        name, vm_name=name, location="eastus2", storage_profile={"dataDisks": data if disk else []}, opts=opts, **RG
    )


def replaced_without_deleting_first() -> None:
    _vm("node", opts=pulumi.ResourceOptions(replace_on_changes=["osProfile"]))


def subnets_in_two_places() -> None:
    network.VirtualNetwork(
        "vnet", virtual_network_name="vnet", subnets=[{"name": "nodes", "addressPrefix": "10.0.0.0/24"}], **RG
    )
    network.Subnet("gateway", subnet_name="gateway", virtual_network_name="vnet", address_prefix="10.0.1.0/24", **RG)


def public_address_on_a_node() -> None:
    network.NetworkInterface(
        "nic",
        network_interface_name="nic",
        ip_configurations=[{"name": "primary", "publicIPAddress": {"id": "/address"}}],
        **RG,
    )


def group_without_a_deny() -> None:
    _group("huddleai-dev-nodes-nsg", [{"priority": 100, "access": "Allow", "destinationPortRange": "8000"}])


def two_vms_attach_one_disk_at_once() -> None:
    _vm("node-1")
    _vm("node-2")


def subscriptions_in_parallel() -> None:
    for sid in ("a", "b"):
        apimanagement.Subscription(
            sid, sid=sid, service_name="gw", display_name=sid, scope="/products/p", state="active", **RG
        )


def component_that_keeps_quiet() -> None:
    pulumi.ComponentResource("h100:test:Quiet", "quiet")


def resource_without_a_component() -> None:
    _vm("node", disk=False)


def disk_of_a_kind_that_there_is_not() -> None:
    compute.Disk(
        "disk", disk_name="disk", location="eastus2", creation_data={"createOption": "Nothing"}, disk_size_gb=4, **RG
    )


def type_without_a_contract() -> None:
    network.RouteTable("routes", route_table_name="routes", **RG)


def _group(name: str, rules: list[dict[str, Any]]) -> None:
    filled: list[Mapping[str, Any]] = [
        {
            "name": f"rule-{rule['priority']}",
            "direction": "Inbound",
            "protocol": "*",
            "sourceAddressPrefix": "*",
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            **rule,
        }
        for rule in rules
    ]
    network.NetworkSecurityGroup("group", network_security_group_name=name, security_rules=filled, **RG)


BROKEN: tuple[tuple[Callable[[], None], Callable[[Recording], Iterator[str]]], ...] = (
    (replaced_without_deleting_first, invariants.fixed_names_replace_delete_first),
    (subnets_in_two_places, invariants.children_stand_in_one_place),
    (public_address_on_a_node, invariants.nodes_have_no_public_address),
    (group_without_a_deny, invariants.security_groups_end_with_a_deny),
    (two_vms_attach_one_disk_at_once, invariants.nodes_that_share_a_disk_come_one_by_one),
    (subscriptions_in_parallel, invariants.gateway_entities_are_written_one_by_one),
    (component_that_keeps_quiet, invariants.components_say_what_they_made),
    (resource_without_a_component, invariants.resources_belong_to_a_component),
    (disk_of_a_kind_that_there_is_not, invariants.bodies_are_as_azure_wants_them),
    (type_without_a_contract, invariants.bodies_are_as_azure_wants_them),
)


@pytest.mark.parametrize(("program", "holds"), BROKEN, ids=lambda item: item.__name__)
def test_a_broken_program_is_noticed(program: Callable[[], None], holds: Callable[[Recording], Iterator[str]]) -> None:
    assert len(list(holds(run_program(program, "dev", preview=True)))) == 1


def test_an_unprotected_gateway_in_prod_is_noticed() -> None:
    recording = run_program(lambda: _gateway(protect=False), "prod", preview=True)
    assert len(list(invariants.what_holds_data_is_protected(recording, load_plan("prod")))) == 1


def test_a_gateway_that_dev_can_not_destroy_is_noticed() -> None:
    recording = run_program(lambda: _gateway(protect=True), "dev", preview=True)
    assert len(list(invariants.what_holds_data_is_protected(recording, load_plan("dev")))) == 1


def _gateway(*, protect: bool) -> None:
    apimanagement.ApiManagementService(
        "gateway",
        service_name="gateway",
        publisher_email="a@example.com",
        publisher_name="a",
        sku={"name": "StandardV2", "capacity": 1},
        opts=pulumi.ResourceOptions(protect=protect),
        **RG,
    )


def test_a_port_outside_the_table_and_one_missing_are_noticed() -> None:
    recording = run_program(
        lambda: _group("huddleai-dev-nodes-nsg", [{"priority": 100, "access": "Allow", "destinationPortRange": "22"}]),
        "dev",
        preview=True,
    )
    found = list(invariants.security_rules_match_the_port_table(recording, load_plan("dev")))
    assert "huddleai-dev-nodes-nsg allows inbound 22, which is not in the port table" in found
    assert "huddleai-dev-nodes-nsg lacks inbound 8000, which is in the port table" in found


def test_a_disk_that_is_deleted_one_by_one_is_noticed() -> None:
    def program() -> None:
        compute.Disk("disk", disk_name="disk", creation_data={"createOption": "Empty"}, **RG)

    recording = run_program(program, "dev", preview=True)
    assert len(list(invariants.deletions_are_left_to_azure(recording, load_plan("dev")))) == 1


def test_a_resource_without_tags_is_noticed() -> None:
    recording = run_program(resource_without_a_component, "dev", preview=True)
    assert len(list(invariants.everything_carries_the_tags(recording, load_plan("dev")))) == 1
