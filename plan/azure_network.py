"""One address plan: the VNet, its subnets and every fixed address. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from ipaddress import IPv4Address, IPv4Network
from itertools import combinations
from types import MappingProxyType

from plan.settings.azure import AzureSettings, Network
from plan.vocabulary import GatewayInbound, ModelStoreKind, Segment

AZURE_RESERVED_FIRST = 4
"""Azure keeps the first four addresses of a subnet (network, gateway, two for DNS) and the last one."""
AZURE_RESERVED = 5
BASTION_MIN_PREFIX = 26
WIDEST_PREFIX, NARROWEST_PREFIX = 8, 29
"""Azure takes ranges from /8 to /29 (Microsoft's virtual network FAQ)."""
PLATFORM_RANGES: tuple[IPv4Network, ...] = tuple(
    IPv4Network(text)
    for text in ("127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32")
)
"""Loopback, Azure's DNS, link-local, multicast, broadcast: not allowed in a VNet (the same FAQ)."""


@verify(UNIQUE)
class PrivateLink(StrEnum):
    """Services that are reached by a private endpoint; the value is the DNS zone that holds the endpoint's name."""

    VAULT = "privatelink.vaultcore.azure.net"
    FILES = "privatelink.file.core.windows.net"
    GATEWAY = "privatelink.azure-api.net"


def private_links(settings: AzureSettings) -> Iterator[PrivateLink]:
    """The services that have a private endpoint: the vault always, share and gateway where they are private."""
    yield PrivateLink.VAULT
    if settings.model_store.kind is ModelStoreKind.AZURE_FILES:
        yield PrivateLink.FILES
    if settings.gateway.inbound is GatewayInbound.PRIVATE_ENDPOINT:
        yield PrivateLink.GATEWAY


def zone_of(zone_id: str) -> str:
    """The name of a private zone, in lower case, from its ARM id."""
    return zone_id.rpartition("/")[2].lower()


@dataclass(frozen=True)
class AddressPlan:
    """Ranges by segment, and the private address of each node (head first).

    `elsewhere` holds the segments whose subnet has another owner: rules name their range only.
    """

    address_space: IPv4Network
    subnets: Mapping[Segment, IPv4Network]
    node_addresses: tuple[IPv4Address, ...]
    elsewhere: frozenset[Segment] = frozenset()

    @property
    def own_subnets(self) -> Mapping[Segment, IPv4Network]:
        """The subnets that this program makes."""
        own = {segment: subnet for segment, subnet in self.subnets.items() if segment not in self.elsewhere}
        return MappingProxyType(own)


def is_reserved(address: IPv4Address, subnet: IPv4Network) -> bool:
    """Whether Azure keeps an address of a subnet for itself."""
    place = int(address) - int(subnet.network_address)
    return place < AZURE_RESERVED_FIRST or place == subnet.num_addresses - 1


def node_capacity(subnet: IPv4Network) -> int:
    """How many nodes a subnet can hold."""
    return max(0, subnet.num_addresses - AZURE_RESERVED)


def plan_addresses(
    network: Network, node_count: int, *, with_bastion: bool, gateway_elsewhere: IPv4Network | None = None
) -> AddressPlan:
    """Lay out the VNet. Settings have passed `conflicts` before.

    `gateway_elsewhere` is the range of a gateway that has another owner.
    """
    subnets = {
        Segment.NODES: network.nodes_subnet,
        Segment.GATEWAY: gateway_elsewhere or network.gateway_subnet,
        Segment.ENDPOINTS: network.endpoints_subnet,
    }
    if with_bastion:
        subnets[Segment.BASTION] = network.bastion_subnet
    first = network.nodes_subnet.network_address + AZURE_RESERVED_FIRST
    return AddressPlan(
        address_space=network.address_space,
        subnets=MappingProxyType(subnets),
        node_addresses=tuple(first + index for index in range(node_count)),
        elsewhere=frozenset({Segment.GATEWAY} if gateway_elsewhere else ()),
    )


def conflicts(network: Network, *, with_bastion: bool, with_gateway: bool = True) -> Iterator[tuple[str, str]]:
    """Every range that Azure refuses, that lies outside the VNet or overlaps another, as (key, sentence).

    Bastion's and the gateway's ranges count only where they become subnets.
    """
    sometimes = {"gateway_subnet": with_gateway, "bastion_subnet": with_bastion}
    keys = [
        key
        for key in ("nodes_subnet", "gateway_subnet", "endpoints_subnet", "bastion_subnet")
        if sometimes.get(key, True)
    ]
    keyed: dict[str, IPv4Network] = {key: getattr(network, key) for key in keys}
    for key, subnet in {"address_space": network.address_space, **keyed}.items():
        if not WIDEST_PREFIX <= subnet.prefixlen <= NARROWEST_PREFIX:
            yield key, f"{subnet} is not a size that Azure takes; allowed: /{WIDEST_PREFIX} to /{NARROWEST_PREFIX}"
    for taken in PLATFORM_RANGES:
        if taken.overlaps(network.address_space):
            yield "address_space", f"{network.address_space} holds {taken}, which Azure keeps; choose another range"
    for key, subnet in keyed.items():
        if not subnet.subnet_of(network.address_space):
            yield key, f"{subnet} is not inside address_space {network.address_space}"
    for (key, subnet), (other_key, other) in combinations(keyed.items(), 2):
        if subnet.overlaps(other):
            yield other_key, f"{other} overlaps {key} {subnet}; ranges must be disjoint"
    for index, reserved in enumerate(network.reserved_ranges):
        if reserved.overlaps(network.address_space):
            yield (
                f"reserved_ranges[{index}]",
                f"{reserved} overlaps address_space {network.address_space}; choose another address_space",
            )
