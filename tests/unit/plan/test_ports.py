"""One port table: NSG rules say exactly what it says, no more and no less."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given

from plan.azure.model import AzurePlan
from plan.azure.security_rules import PRIORITIES, NsgPriority, NsgRule
from plan.ports import Flow
from plan.vocabulary import SUBNETS, Segment
from tests.unit.stack_values import FILES, GATEWAYS, legal_changes, plan


def allowed(built: AzurePlan) -> set[tuple[Segment | None, Segment | None, str, str]]:
    """What the NSGs let through: source, destination, ports, protocol."""
    return {
        (rule.source, rule.destination, span, rule.protocol)
        for zone, rules in built.security_rules.items()
        if zone is not Segment.BASTION
        for rule in rules
        if rule.access == "Allow"
        for span in rule.ports
    }


def promised(built: AzurePlan) -> set[tuple[Segment | None, Segment | None, str, str]]:
    """What the port table says may reach a subnet of ours, or an Azure service from one; but Bastion's subnet."""
    own = set(built.security_rules) - {Segment.BASTION}
    return {
        (caller, flow.listener, span, flow.protocol)
        for flow in built.port_table
        for caller in flow.callers
        if caller is not Segment.LOOPBACK and (flow.listener in own or caller in own)
        for span in flow.port_ranges
    }


def rules_of(built: AzurePlan, zone: Segment) -> dict[str, NsgRule]:
    return {rule.name: rule for rule in built.security_rules[zone]}


def flow_of(built: AzurePlan, name: str) -> Flow:
    (found,) = (flow for flow in built.port_table if flow.name == name)
    return found


@given(changes=legal_changes())
def test_every_rule_is_in_the_table_and_every_flow_is_in_a_rule(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    assert allowed(built) == promised(built)


@given(changes=legal_changes())
def test_every_nsg_is_well_formed(changes: dict[str, Any]) -> None:
    for zone, rules in plan(**changes).security_rules.items():
        for direction in ("Inbound", "Outbound"):
            numbers = [rule.priority for rule in rules if rule.direction == direction]
            assert len(set(numbers)) == len(numbers)
            assert numbers == sorted(numbers)
        assert len({rule.name for rule in rules}) == len(rules)
        *others, last = rules
        assert all(rule.access == "Allow" and rule.priority < last.priority for rule in others)
        assert (last.access, last.direction, last.priority, last.ports) == ("Deny", "Inbound", 4096, ("*",))
        assert (last.source, last.destination, last.protocol) == (None, None, "*")
        for rule in others:
            subnet = rule.destination if rule.direction == "Inbound" else rule.source
            assert subnet is zone or zone is Segment.BASTION
            assert rule.ports
            assert len(rule.name) <= 80
            assert len(rule.description) <= 140
            assert rule.name == rule.name.lower()


@given(changes=legal_changes())
def test_what_is_loopback_only_is_in_no_rule(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    names = {rule.name for rules in built.security_rules.values() for rule in rules}
    open_spans = [
        span
        for flow in built.port_table
        if flow.listener is Segment.NODES and not flow.loopback_only
        for span in flow.ports
    ]
    for flow in built.port_table:
        if flow.loopback_only:
            assert not any(name.startswith(f"allow-{flow.name}-from-") for name in names)
            assert not any(first <= port <= last for first, last in open_spans for port in chain(*flow.ports))
        else:
            assert Segment.LOOPBACK not in flow.callers
            assert all((flow.name, caller) in PRIORITIES for caller in flow.callers)


@given(changes=legal_changes())
def test_flow_names_and_ports_on_a_node_are_unique(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    assert len({flow.name for flow in built.port_table}) == len(built.port_table)
    taken: set[int] = set()
    for flow in built.port_table:
        if flow.listener is Segment.NODES:
            own = {port for first, last in flow.ports for port in range(first, last + 1)}
            assert not own & taken, flow.name
            taken |= own


@given(changes=legal_changes())
def test_nobody_from_the_internet_reaches_a_node(changes: dict[str, Any]) -> None:
    for rule in plan(**changes).security_rules[Segment.NODES]:
        if rule.access == "Allow":
            assert rule.source in (Segment.GATEWAY, Segment.BASTION, Segment.SHARED_BASTION, Segment.NODES)


def test_who_may_call_what_on_a_dev_node() -> None:
    inbound = {
        (str(rule.source), *rule.ports)
        for rule in plan().security_rules[Segment.NODES]
        if rule.direction == "Inbound" and rule.access == "Allow"
    }
    assert inbound == {
        ("gateway", "8000"),
        *(("nodes", port) for port in ("6379", "6380", "6381", "6382", "6383", "6384", "20000-20999")),
    }


def test_the_seeds_ports_and_what_stays_on_loopback() -> None:
    built = plan(jupyter={"enabled": True})
    spans = {flow.name: flow.port_ranges for flow in built.port_table if flow.listener is Segment.NODES}
    assert (spans["wrapper"], spans["vllm"], spans["ray-gcs"]) == (("8000",), ("5005",), ("6379",))
    loopback = {flow.name for flow in built.port_table if flow.loopback_only}
    assert {"vllm", "ray-client", "ray-dashboard", "jupyterlab", "wrapper-metrics", "ssh"} <= loopback


def test_a_port_that_moves_moves_its_rule_too() -> None:
    built = plan(serving={"ports": {"wrapper": 8100, "ray_gcs": 6400}})
    assert rules_of(built, Segment.NODES)["allow-wrapper-from-gateway"].ports == ("8100",)
    assert rules_of(built, Segment.NODES)["allow-ray-gcs-from-nodes"].ports == ("6400",)
    assert built.gateway.backends[0].url == "http://10.0.0.4:8100/v1"
    assert (built.serving.wrapper_port, built.serving.ray_gcs_port) == (8100, 6400)


def test_models_across_nodes_open_the_collectives_ports_between_nodes_only() -> None:
    names = set(rules_of(plan(), Segment.NODES))
    spread = rules_of(plan(serving={"topology": "distributed"}), Segment.NODES)
    assert set(spread) - names == {"allow-torch-rendezvous-from-nodes", "allow-collectives-from-nodes"}
    assert {spread[name].source for name in set(spread) - names} == {Segment.NODES}


def test_delivery_over_ssh_lets_the_networks_in_that_the_vnet_knows() -> None:
    rule = rules_of(plan(access={"delivery": "ssh"}), Segment.NODES)["allow-ssh-from-virtual-network"]
    assert (rule.source, rule.ports, rule.access) == (Segment.VIRTUAL_NETWORK, ("22",), "Allow")


def test_ssh_comes_from_bastion_and_only_where_there_is_one() -> None:
    assert flow_of(plan(), "ssh").loopback_only
    with_bastion = plan(access={"bastion": {"sku": "Standard"}})
    assert rules_of(with_bastion, Segment.NODES)["allow-ssh-from-bastion"].ports == ("22",)


def test_the_shared_bastion_comes_from_azures_own_address() -> None:
    rules = rules_of(plan(access={"bastion": {"sku": "Developer"}}), Segment.NODES).values()
    assert [(rule.source, rule.ports) for rule in rules if "22" in rule.ports] == [(Segment.SHARED_BASTION, ("22",))]
    assert Segment.SHARED_BASTION.value == "168.63.129.16"


@pytest.mark.parametrize(
    ("tier", "units", "expected"),
    [
        ("Premium", 2, {("Inbound", "Udp", "4290"), ("Inbound", "Tcp", "6380-6383")}),
        ("Premium", 1, set()),
        ("StandardV2", 2, set()),
    ],
)
def test_units_of_a_classic_gateway_talk_to_each_other(tier: str, units: int, expected: set[tuple[str, ...]]) -> None:
    rules = rules_of(plan(gateway={"tier": tier, "units": units}), Segment.GATEWAY).values()
    allowed = [rule for rule in rules if rule.access == "Allow"]
    between = {(rule.direction, rule.protocol, *rule.ports) for rule in allowed if rule.source is rule.destination}
    assert between == expected


def test_a_classic_gateway_has_the_rules_that_azure_demands() -> None:
    """The list of docs/facts/api-management.md#classic-injection."""
    rules = rules_of(plan(gateway={"tier": "Developer", "inbound": "internal"}), Segment.GATEWAY)
    seen = {(str(rule.source), str(rule.destination), *rule.ports) for rule in rules.values() if rule.access == "Allow"}
    assert {
        ("VirtualNetwork", "gateway", "443"),
        ("ApiManagement", "gateway", "3443"),
        ("AzureLoadBalancer", "gateway", "6390"),
        ("gateway", "Storage", "443"),
        ("gateway", "Sql", "1433"),
        ("gateway", "AzureKeyVault", "443"),
        ("gateway", "AzureMonitor", "443", "1886"),
        ("gateway", "Internet", "80"),
    } == seen


@pytest.mark.parametrize("way", GATEWAYS)
def test_only_a_gateway_inside_the_vnet_listens_in_its_subnet(way: tuple[str, str]) -> None:
    tier, inbound = way
    built = plan(gateway={"tier": tier, "inbound": inbound})
    listens = [flow for flow in built.port_table if flow.name == "gateway-clients"]
    assert bool(listens) == built.gateway.injected
    if listens:
        assert listens[0].callers == ((Segment.INTERNET,) if inbound == "public" else (Segment.VIRTUAL_NETWORK,))


def test_nfs_is_open_to_nodes_only_where_models_are_on_azure_files() -> None:
    assert "allow-nfs-from-nodes" not in rules_of(plan(), Segment.ENDPOINTS)
    files = plan(model_store=FILES)
    assert rules_of(files, Segment.ENDPOINTS)["allow-nfs-from-nodes"].ports == ("2049",)


def test_every_subnet_has_an_nsg_and_every_priority_is_used_somewhere() -> None:
    everything = [
        plan(access={"bastion": {"sku": "Standard"}, "delivery": "ssh"}, serving={"topology": "distributed"}),
        plan(gateway={"tier": "Premium", "inbound": "public", "units": 2}, access={"bastion": {"sku": "Developer"}}),
        plan(gateway={"tier": "Premium", "inbound": "internal"}),
        plan(model_store=FILES),
    ]
    assert set(everything[0].security_rules) == set(SUBNETS)
    used = {rule.priority for built in everything for rules in built.security_rules.values() for rule in rules}
    assert used == set(NsgPriority)
