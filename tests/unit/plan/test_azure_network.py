"""The address plan: nothing overlaps, everything fits, and what Azure refuses is refused before."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations, islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.azure_network import AZURE_RESERVED, PLATFORM_RANGES, conflicts, node_capacity, plan_addresses
from plan.settings.azure import Network
from plan.vocabulary import Segment
from tests.unit.stack_values import FILES, fault, legal_changes, plan

SEED = Network()


@given(changes=legal_changes())
def test_nothing_overlaps_and_everything_is_inside(changes: dict[str, Any]) -> None:
    addresses = plan(**changes).addresses
    for first, second in combinations(addresses.subnets.values(), 2):
        assert not first.overlaps(second)
    for subnet in addresses.subnets.values():
        assert subnet.subnet_of(addresses.address_space)
    assert len(set(addresses.node_addresses)) == changes["nodes"]["count"]
    reserved = set(list(addresses.subnets[Segment.NODES])[:4]) | {addresses.subnets[Segment.NODES].broadcast_address}
    for address in addresses.node_addresses:
        assert address in addresses.subnets[Segment.NODES]
        assert address not in reserved


def test_the_seeds_addresses() -> None:
    addresses = plan().addresses
    assert [str(address) for address in addresses.node_addresses] == ["10.0.0.4", "10.0.0.5"]
    assert {zone.value: str(subnet) for zone, subnet in addresses.subnets.items()} == {
        "nodes": "10.0.0.0/24",
        "gateway": "10.0.1.0/24",
        "endpoints": "10.0.2.0/24",
    }


def test_the_defaults_are_the_seeds_ranges_and_fit_together() -> None:
    assert list(conflicts(SEED, with_bastion=True)) == []
    ranges = (SEED.address_space, SEED.nodes_subnet, SEED.gateway_subnet, SEED.endpoints_subnet, SEED.bastion_subnet)
    assert [str(item) for item in ranges] == ["10.0.0.0/16", "10.0.0.0/24", "10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/26"]


def test_a_node_keeps_its_address_when_nodes_are_added() -> None:
    two = plan_addresses(SEED, 2, with_bastion=False).node_addresses
    assert plan_addresses(SEED, 9, with_bastion=False).node_addresses[:2] == two


@given(prefix=st.integers(8, 32))
def test_capacity_is_what_azure_leaves(prefix: int) -> None:
    subnet = IPv4Network((int(IPv4Address("10.0.0.0")), prefix))
    assert node_capacity(subnet) == max(0, 2 ** (32 - prefix) - AZURE_RESERVED)


@pytest.mark.parametrize(("prefix", "count"), [(29, 3), (28, 11), (27, 27)])
def test_a_subnet_takes_as_many_nodes_as_it_holds_and_not_one_more(prefix: int, count: int) -> None:
    full: dict[str, Any] = {
        "network": {"nodes_subnet": f"10.0.0.0/{prefix}"},
        "nodes": {"count": count, "quota_vcpus": 4000},
        "model_store": FILES,
    }
    addresses = plan(**full).addresses.node_addresses
    assert addresses[-1] == list(IPv4Network(f"10.0.0.0/{prefix}").hosts())[-1]
    full["nodes"] = {**full["nodes"], "count": count + 1}
    found = fault(**full)
    assert found.key == "network.nodes_subnet"
    assert f"holds {count} nodes (Azure keeps 5 addresses), nodes.count is {count + 1}" in found.message


CIDRS = st.builds(
    lambda base, prefix: IPv4Network((int(base), prefix), strict=False),
    st.integers(int(IPv4Address("10.0.0.0")), int(IPv4Address("10.0.15.255"))),
    st.integers(20, 30),
)


@given(ranges=st.tuples(CIDRS, CIDRS, CIDRS, CIDRS), with_bastion=st.booleans())
def test_conflicts_are_found_exactly_when_there_are_some(ranges: tuple[IPv4Network, ...], with_bastion: bool) -> None:
    space = IPv4Network("10.0.0.0/21")
    keys = ("nodes_subnet", "gateway_subnet", "endpoints_subnet", "bastion_subnet")
    network = Network(address_space=space, **dict(zip(keys, ranges, strict=True)))
    used = ranges if with_bastion else ranges[:3]
    fine = all(subnet.subnet_of(space) and subnet.prefixlen <= 29 for subnet in used) and len(
        {address for subnet in used for address in subnet}
    ) == sum(subnet.num_addresses for subnet in used)
    assert (not list(conflicts(network, with_bastion=with_bastion))) == fine


@pytest.mark.parametrize(
    ("network", "key", "expected"),
    [
        (
            {"gateway_subnet": "10.0.0.128/25"},
            "network.gateway_subnet",
            "10.0.0.128/25 overlaps nodes_subnet 10.0.0.0/24; ranges must be disjoint",
        ),
        (
            {"endpoints_subnet": "10.1.0.0/24"},
            "network.endpoints_subnet",
            "10.1.0.0/24 is not inside address_space 10.0.0.0/16",
        ),
        (
            {"reserved_ranges": ["192.168.0.0/16", "10.0.255.0/24"]},
            "network.reserved_ranges[1]",
            "10.0.255.0/24 overlaps address_space 10.0.0.0/16; choose another address_space",
        ),
        (
            {"endpoints_subnet": "10.0.2.0/30"},
            "network.endpoints_subnet",
            "10.0.2.0/30 is not a size that Azure takes; allowed: /8 to /29",
        ),
        (
            {"address_space": "10.0.0.0/7", "nodes_subnet": "10.0.0.0/24"},
            "network.address_space",
            "10.0.0.0/7 is not a size that Azure takes; allowed: /8 to /29",
        ),
    ],
)
def test_a_wrong_range_gives_one_sentence(network: dict[str, Any], key: str, expected: str) -> None:
    found = fault(network=network)
    assert (found.key, found.message) == (key, expected)


@pytest.mark.parametrize("taken", PLATFORM_RANGES)
def test_ranges_that_azure_keeps_are_refused(taken: IPv4Network) -> None:
    space = taken if taken.prefixlen <= 24 else taken.supernet(new_prefix=16)
    parts = islice(space.subnets(new_prefix=max(space.prefixlen + 3, 24)), 3)
    keys = ("nodes_subnet", "gateway_subnet", "endpoints_subnet")
    network = Network(address_space=space, **dict(zip(keys, parts, strict=True)))
    found = [sentence for key, sentence in conflicts(network, with_bastion=False) if key == "address_space"]
    assert any(f"holds {taken}, which Azure keeps" in sentence for sentence in found)


def test_bastions_range_matters_only_where_it_becomes_a_subnet() -> None:
    outside = {"bastion_subnet": "192.168.0.0/26"}
    assert Segment.BASTION not in plan(network=outside).addresses.subnets
    assert Segment.BASTION not in plan(network=outside, access={"bastion": {"sku": "Developer"}}).addresses.subnets
    assert fault(network=outside, access={"bastion": {"sku": "Basic"}}).key == "network.bastion_subnet"


def test_bastion_needs_a_26() -> None:
    found = fault(network={"bastion_subnet": "10.0.3.0/27"}, access={"bastion": {"sku": "Basic"}})
    assert found.message == "10.0.3.0/27 is too small for Azure Bastion; allowed: /26 or larger"
