from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.network import Network, NetworkArgs, _rule
from plan.azure.model import AzurePlan
from plan.azure.security_rules import NsgPriority, NsgRule
from plan.azure_network import AddressPlan
from plan.vocabulary import SUBNETS, Segment
from simulator.plugin.values import UNKNOWN
from tests.unit.builders import plan, scope
from tests.unit.recording import Recorded, Recording, run_program

VNET, NSG, NAT = "network:VirtualNetwork", "network:NetworkSecurityGroup", "network:NatGateway"
ADDRESS, PREFIX = "network:PublicIPAddress", "network:PublicIPPrefix"


DEV = plan()


@cache
def dev(preview: bool = False) -> Recording:
    return build(DEV, preview)


def build(built: AzurePlan, preview: bool = False, zone: str | None = None, existing: str | None = None) -> Recording:
    def program() -> Mapping[str, Any]:
        network = Network(
            "network",
            NetworkArgs(
                scope=scope(built),
                addresses=built.addresses,
                security_rules=built.security_rules,
                gateway_delegation=built.gateway.delegation,
                zone=zone,
                existing_vnet=existing,
            ),
        )
        return {
            "vnet": network.vnet_id,
            "nat": network.nat_address,
            **{f"subnet-{zone}": subnet_id for zone, subnet_id in network.subnet_ids.items()},
        }

    return run_program(program, preview=preview)


def subnets(recording: Recording) -> dict[str, dict[str, Any]]:
    return {subnet["name"]: subnet for subnet in recording.one(VNET)["subnets"]}


def rules(group: Recorded) -> dict[str, dict[str, Any]]:
    return {rule["name"]: rule for rule in group["securityRules"]}


@cache
def with_bastion() -> Recording:
    return build(plan(access={"bastion": {"sku": "Standard", "tunnel": True}}))


def test_subnets_stand_in_the_vnet_with_the_plans_ranges_and_nowhere_else(preview: bool) -> None:
    recording = dev(preview)
    vnet = recording.one(VNET)
    assert vnet["virtualNetworkName"] == "huddleai-dev-vnet"
    assert vnet["addressSpace.addressPrefixes"] == ["10.0.0.0/16"]
    assert {name: subnet["addressPrefix"] for name, subnet in subnets(recording).items()} == {
        "nodes": "10.0.0.0/24",
        "gateway": "10.0.1.0/24",
        "endpoints": "10.0.2.0/24",
    }
    assert not recording.of("network:Subnet")
    assert not recording.of("network:SecurityRule")


def test_no_subnet_has_a_way_out_that_nobody_asked_for() -> None:
    assert {name: subnet["defaultOutboundAccess"] for name, subnet in subnets(with_bastion()).items()} == {
        "nodes": False,
        "gateway": False,
        "endpoints": False,
        "AzureBastionSubnet": False,
    }


def test_every_subnet_has_its_own_security_group() -> None:
    recording = with_bastion()
    groups = {group["networkSecurityGroupName"]: group.id for group in recording.of(NSG)}
    for name, subnet in subnets(recording).items():
        zone = "bastion" if name == "AzureBastionSubnet" else name
        assert subnet["networkSecurityGroup"]["id"] == groups[f"huddleai-dev-{zone}-nsg"]


def test_only_nodes_go_out_through_the_nat_gateway(preview: bool) -> None:
    recording = dev(preview)
    with_nat = {name: subnet.get("natGateway") for name, subnet in subnets(recording).items()}
    assert with_nat["gateway"] is None
    assert with_nat["endpoints"] is None
    assert with_nat["nodes"] == {"id": UNKNOWN if preview else recording.one(NAT).id}
    assert recording.waits_for(recording.one(VNET), recording.one(NAT))


@pytest.mark.parametrize(
    ("gateway", "delegation"),
    [
        ({"tier": "StandardV2", "inbound": "public"}, "Microsoft.Web/serverFarms"),
        ({"tier": "StandardV2", "inbound": "private-endpoint"}, "Microsoft.Web/serverFarms"),
        ({"tier": "PremiumV2", "inbound": "internal"}, "Microsoft.Web/hostingEnvironments"),
        ({"tier": "Developer", "inbound": "public"}, None),
        ({"tier": "Premium", "inbound": "internal"}, None),
    ],
)
def test_the_gateways_subnet_is_lent_as_its_tier_demands(gateway: dict[str, str], delegation: str | None) -> None:
    found = {name: subnet.get("delegations") for name, subnet in subnets(build(plan(gateway=gateway))).items()}
    expected = [{"name": "gateway", "serviceName": delegation}] if delegation else None
    assert found == {"nodes": None, "gateway": expected, "endpoints": None}


def test_security_rules_apply_to_private_endpoints() -> None:
    policies = {name: subnet["privateEndpointNetworkPolicies"] for name, subnet in subnets(dev()).items()}
    assert policies == {"nodes": "Disabled", "gateway": "Disabled", "endpoints": "NetworkSecurityGroupEnabled"}


def test_nodes_admit_the_wrapper_from_the_gateway_ray_from_each_other_and_nothing_else() -> None:
    nodes = rules(with_bastion().one(NSG, "nodes-nsg"))
    wrapper = nodes["allow-wrapper-from-gateway"]
    assert (wrapper["sourceAddressPrefix"], wrapper["destinationAddressPrefix"]) == ("10.0.1.0/24", "10.0.0.0/24")
    assert (wrapper["destinationPortRange"], wrapper["priority"], wrapper["protocol"]) == ("8000", 1000, "Tcp")
    assert (wrapper["direction"], wrapper["access"], wrapper["sourcePortRange"]) == ("Inbound", "Allow", "*")
    ssh = nodes["allow-ssh-from-bastion"]
    assert (ssh["sourceAddressPrefix"], ssh["destinationPortRange"]) == ("10.0.3.0/26", "22")
    gcs = nodes["allow-ray-gcs-from-nodes"]
    assert (gcs["sourceAddressPrefix"], gcs["destinationPortRange"]) == ("10.0.0.0/24", "6379")
    open_ports = {rule["destinationPortRange"] for rule in nodes.values() if rule["access"] == "Allow"}
    assert not open_ports & {"5005", "8265", "10001", "8889", "*"}
    deny = nodes["deny-all-inbound"]
    assert (deny["priority"], deny["access"], deny["sourceAddressPrefix"]) == (4096, "Deny", "*")
    assert (deny["destinationAddressPrefix"], deny["destinationPortRange"], deny["protocol"]) == ("*", "*", "*")


def test_azures_own_callers_are_service_tags_and_several_ports_a_list() -> None:
    gateway = rules(build(plan(gateway={"tier": "Developer", "inbound": "public"})).one(NSG, "gateway-nsg"))
    assert gateway["allow-gateway-management-from-api-management"]["sourceAddressPrefix"] == "ApiManagement"
    assert gateway["allow-gateway-management-from-api-management"]["destinationPortRange"] == "3443"
    assert gateway["allow-gateway-clients-from-internet"]["sourceAddressPrefix"] == "Internet"
    monitor = gateway["allow-monitor-to-azure-monitor"]
    assert (monitor["direction"], monitor["sourceAddressPrefix"]) == ("Outbound", "10.0.1.0/24")
    assert monitor["destinationAddressPrefix"] == "AzureMonitor"
    assert monitor["destinationPortRanges"] == ["443", "1886"]
    assert "destinationPortRange" not in monitor


def test_a_subnet_that_bastion_needs_exists_only_with_bastion() -> None:
    assert "AzureBastionSubnet" not in subnets(dev())
    assert len(dev().of(NSG)) == 3
    recording = with_bastion()
    assert subnets(recording)["AzureBastionSubnet"]["addressPrefix"] == "10.0.3.0/26"
    assert recording.exports["subnet-bastion"].endswith("/virtualNetworks/huddleai-dev-vnet/subnets/AzureBastionSubnet")


ANY, VNET_TAG = "*", "VirtualNetwork"
BASTION_RULES = {
    # Microsoft's table of 2026-02-24 (docs/facts/azure.md#bastion): direction, source, destination, ports, protocol.
    ("Inbound", "Internet", ANY, ("443",), "Tcp"),
    ("Inbound", "GatewayManager", ANY, ("443",), "Tcp"),
    ("Inbound", "AzureLoadBalancer", ANY, ("443",), "Tcp"),
    ("Inbound", VNET_TAG, VNET_TAG, ("8080", "5701"), ANY),
    ("Outbound", ANY, VNET_TAG, ("22", "3389"), ANY),
    ("Outbound", ANY, "AzureCloud", ("443",), "Tcp"),
    ("Outbound", VNET_TAG, VNET_TAG, ("8080", "5701"), ANY),
    ("Outbound", ANY, "Internet", ("80",), ANY),
}


def test_bastions_subnet_has_the_eight_documented_rules_field_by_field() -> None:
    group = rules(with_bastion().one(NSG, "bastion-nsg"))
    seen = {
        (
            rule["direction"],
            rule["sourceAddressPrefix"],
            rule["destinationAddressPrefix"],
            tuple(rule.get("destinationPortRanges") or [rule["destinationPortRange"]]),
            rule["protocol"],
        )
        for rule in group.values()
        if rule["access"] == "Allow"
    }
    assert seen == BASTION_RULES
    assert {rule["sourcePortRange"] for rule in group.values()} == {ANY}
    assert len(group) == len(BASTION_RULES) + 1, "the eight, and the last deny"


def test_the_address_that_partners_see_is_fixed_and_comes_from_a_prefix(preview: bool) -> None:
    recording = dev(preview)
    address, prefix, nat = recording.one(ADDRESS), recording.one(PREFIX), recording.one(NAT)
    assert {resource["sku.name"] for resource in (address, prefix, nat)} == {"Standard"}
    assert address["publicIPAllocationMethod"] == "Static"
    assert prefix["prefixLength"] == 31
    assert all(resource["zones"] is None for resource in (address, prefix, nat))
    if not preview:
        assert address["publicIPPrefix.id"] == prefix.id
        assert nat["publicIpAddresses"] == [{"id": address.id}]
        assert recording.exports["nat"] == "203.0.113.10"


def test_the_way_out_is_in_the_nodes_zone() -> None:
    recording = build(DEV, zone="2")
    assert [recording.one(kind)["zones"] for kind in (ADDRESS, PREFIX, NAT)] == [["2"]] * 3


def test_subnet_ids_are_known_by_zone() -> None:
    exports = dev().exports
    assert exports["subnet-nodes"] == f"{exports['vnet']}/subnets/nodes"
    assert {name for name in exports if name.startswith("subnet-")} == {
        "subnet-nodes",
        "subnet-gateway",
        "subnet-endpoints",
    }


def test_everything_carries_the_tags() -> None:
    for resource in dev().resources:
        assert not resource.custom or resource["tags.owner"] == "platform", resource.name


NETWORKS = st.integers(0, 255).map(lambda third: IPv4Network(f"10.{third}.0.0/24"))
ZONES = st.one_of(st.none(), st.sampled_from([zone for zone in Segment if zone is not Segment.LOOPBACK]))
PORTS = st.lists(st.integers(1, 65_535).map(str), min_size=1, max_size=4, unique=True).map(tuple)


@given(
    ranges=st.lists(NETWORKS, min_size=len(SUBNETS), max_size=len(SUBNETS), unique=True),
    source=ZONES,
    destination=ZONES,
    ports=PORTS,
)
def test_any_rule_names_both_ends_and_all_ports_once(
    ranges: list[IPv4Network], source: Segment | None, destination: Segment | None, ports: tuple[str, ...]
) -> None:
    by_zone = dict(zip(SUBNETS, ranges, strict=True))
    rule = _rule(
        NsgRule("r", NsgPriority.RAY_GCS, "Inbound", "Allow", "Tcp", source, destination, ports, "why"),
        AddressPlan(IPv4Network("10.0.0.0/8"), by_zone, ()),
    )
    for zone, prefix in ((source, rule.source_address_prefix), (destination, rule.destination_address_prefix)):
        assert prefix == ("*" if zone is None else str(by_zone[zone]) if zone in by_zone else zone.value)
    written = [rule.destination_port_range] if rule.destination_port_range else []
    assert (*written, *(rule.destination_port_ranges or [])) == ports


GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub"
HUB = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/h"


def test_a_vnet_that_is_there_already_is_left_alone_and_gets_our_subnets(preview: bool) -> None:
    recording, usual = build(DEV, preview, existing=HUB), subnets(dev(preview))
    assert recording.of(VNET) == []
    made = {subnet["subnetName"]: subnet for subnet in recording.of("network:Subnet")}
    assert set(made) == {f"huddleai-dev-{zone}" for zone in ("nodes", "gateway", "endpoints")}
    for name, subnet in made.items():
        assert (subnet["resourceGroupName"], subnet["virtualNetworkName"]) == ("hub", "h")
        as_usual = usual[name.removeprefix("huddleai-dev-")]
        for key in ("addressPrefix", "delegations", "privateEndpointNetworkPolicies", "defaultOutboundAccess"):
            assert subnet[key] == as_usual.get(key), f"{key} of {name}"
        assert subnet["networkSecurityGroup"], "a subnet without rules would be open to the whole hub"
    assert recording.exports["vnet"] == HUB


def test_subnets_of_a_shared_vnet_are_made_one_after_the_other() -> None:
    recording = build(DEV, existing=HUB)
    for first, second in pairwise(recording.of("network:Subnet")):
        assert recording.waits_for(second, first), "Azure changes one child of a VNet at a time"
    for subnet in recording.of("network:Subnet"):
        zone = subnet["subnetName"].removeprefix("huddleai-dev-")
        assert recording.exports[f"subnet-{zone}"] == subnet.id


def test_the_subnet_of_a_gateway_elsewhere_is_named_in_rules_and_not_made() -> None:
    service = HUB.replace("Network/virtualNetworks", "ApiManagement/service")
    built = plan(gateway={"existing": {"id": service, "subnet": "10.9.0.0/27"}})
    recording = build(built)
    assert "gateway" not in subnets(recording)
    assert {group["networkSecurityGroupName"] for group in recording.of(NSG)} == {
        "huddleai-dev-nodes-nsg",
        "huddleai-dev-endpoints-nsg",
    }
    wrapper = rules(recording.one(NSG, "nodes-nsg"))["allow-wrapper-from-gateway"]
    assert wrapper["sourceAddressPrefix"] == "10.9.0.0/27"
