"""Address ranges and subnets: what fits, what overlaps, who uses what."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from simulator.azure.errors import ArmError, bad_request
from simulator.azure.state.store import Resource, State

if TYPE_CHECKING:
    from simulator.azure.rules.base import Op

Network = ipaddress.IPv4Network
RESERVED_PER_SUBNET: Final = 5  # network, gateway, two for DNS, broadcast (Microsoft's virtual network FAQ)
BASTION_SUBNET: Final = "AzureBastionSubnet"
_LINKS: Final = "links"  # a network's note of links that outlive their service


def parse(prefix: Any) -> Network:
    """A CIDR.

    Raises:
        ArmError: it is not one, or has host bits.
    """
    try:
        return ipaddress.IPv4Network(str(prefix))
    except ValueError as error:
        raise bad_request(
            "InvalidCIDRNotation",
            f"The address prefix {prefix} in resource has an invalid CIDR notation. For the given prefix length, the "
            "address prefix should be a network address.",
        ) from error


def prefixes_of(subnet: Mapping[str, Any]) -> list[Network]:
    """All ranges of a subnet body."""
    texts = subnet.get("addressPrefixes") or [subnet.get("addressPrefix")]
    return [parse(text) for text in texts if text]


def require_fit(space: Iterable[Network], subnets: Iterable[Mapping[str, Any]], vnet_id: str) -> None:
    """Subnets lie inside the address space and do not overlap.

    Raises:
        ArmError: NetcfgSubnetRangeOutsideVnet or NetcfgSubnetRangesOverlap.
    """
    ranges = list(space)
    taken: list[tuple[str, Network]] = []
    vnet = vnet_id.rsplit("/", 1)[-1]
    for subnet in subnets:
        name = str(subnet.get("name"))
        for network in prefixes_of(subnet):
            if not any(network.subnet_of(one) for one in ranges):
                raise bad_request(
                    "NetcfgSubnetRangeOutsideVnet",
                    f"Subnet '{name}' is not valid because its IP address range is outside the IP address range of "
                    f"virtual network '{vnet}'.",
                )
            for other, range_ in taken:
                if network.overlaps(range_):
                    raise bad_request(
                        "NetcfgSubnetRangesOverlap",
                        f"Subnet '{name}' is not valid because its IP address range overlaps with that of an existing "
                        f"subnet '{other}' in virtual network '{vnet}'.",
                    )
            taken.append((name, network))


def body_of(state: State, subnet_id: str) -> dict[str, Any] | None:
    """A subnet as its virtual network lists it."""
    vnet_id, _, name = subnet_id.rpartition("/subnets/")
    vnet = state.get(vnet_id)
    if vnet is None:
        return None
    for subnet in vnet.properties.get("subnets", []):
        if str(subnet.get("name", "")).lower() == name.lower():
            found: dict[str, Any] = subnet
            return found
    return None


def vnet_of(subnet_id: str) -> str:
    """The virtual network's id in a subnet's id."""
    return subnet_id.rpartition("/subnets/")[0]


def users(state: State, subnet_id: str) -> list[Resource]:
    """Resources that have addresses in a subnet (its own virtual network and subnet resource aside)."""
    return [
        resource
        for resource in state.referrers(subnet_id, exclude_inside=vnet_of(subnet_id))
        if resource.key
        in {
            "network:NetworkInterface",
            "network:BastionHost",
            "network:PrivateEndpoint",
            "network:LoadBalancer",
            "apimanagement:ApiManagementService",
        }
    ]


def in_use(op: Op, subnet_id: str) -> ArmError | None:
    """The refusal to delete a subnet that is in use (text as in public issue reports)."""
    for holder in _holders(op, subnet_id):
        return bad_request(
            "InUseSubnetCannotBeDeleted",
            f"Subnet {subnet_id.rsplit('/', 1)[-1]} is in use by {holder} and cannot be deleted. In order to delete "
            "the subnet, delete all the resources within the subnet. See aka.ms/deletesubnet.",
        )
    return None


def _holders(op: Op, subnet_id: str) -> Iterator[str]:
    link = f"{subnet_id}/serviceAssociationLinks/AppServiceLink"
    for user in users(op.state, subnet_id):
        if user.key == "network:NetworkInterface":
            first = (user.properties.get("ipConfigurations") or [{}])[0]
            yield f"{user.id}/ipConfigurations/{first.get('name', 'ipconfig')}"
        else:
            yield link if user.key == "apimanagement:ApiManagementService" else user.id
    vnet = op.state.get(vnet_of(subnet_id))
    if vnet is not None and vnet.notes.get(_LINKS, {}).get(subnet_id.lower(), 0.0) > op.now:
        yield link


def keep_link(state: State, subnet_id: str, until: float) -> None:
    """A deleted gateway's link to a delegated subnet stays until then (seconds since the epoch)."""
    vnet = state.get(vnet_of(subnet_id))
    if vnet is not None and delegations(body_of(state, subnet_id) or {}):
        vnet.notes[_LINKS] = {**vnet.notes.get(_LINKS, {}), subnet_id.lower(): until}


def delegations(subnet: Mapping[str, Any]) -> frozenset[str]:
    """Services a subnet is delegated to."""
    return frozenset(str(item.get("serviceName")) for item in subnet.get("delegations") or [])


def taken_addresses(state: State, subnet_id: str) -> dict[str, str]:
    """Private addresses in use in a subnet → id of the holder."""
    wanted = subnet_id.lower()
    found: dict[str, str] = {}
    for nic in state.of_type("network:NetworkInterface"):
        for config in nic.properties.get("ipConfigurations", []):
            if str((config.get("subnet") or {}).get("id", "")).lower() == wanted and config.get("privateIPAddress"):
                found[config["privateIPAddress"]] = nic.id
    return found


def next_address(state: State, subnet_id: str) -> str:
    """The next free address, as Azure's dynamic allocation gives it.

    Raises:
        ArmError: SubnetIsFull.
    """
    body = body_of(state, subnet_id) or {}
    taken = taken_addresses(state, subnet_id)
    for network in prefixes_of(body):
        for host in list(network.hosts())[3:]:
            if str(host) not in taken:
                return str(host)
    name = subnet_id.rsplit("/", 1)[-1]
    raise bad_request(
        "SubnetIsFull", f"Subnet {name} with address prefix {body.get('addressPrefix')} does not have enough capacity."
    )


def require_static(state: State, subnet_id: str, address: str, owner_id: str) -> None:
    """A static address belongs to the subnet, is not reserved and not taken.

    Raises:
        ArmError: with Azure's three codes for that.
    """
    body = body_of(state, subnet_id) or {}
    prefix = body.get("addressPrefix") or ", ".join(body.get("addressPrefixes") or [])
    ip = ipaddress.IPv4Address(address)
    home = next((network for network in prefixes_of(body) if ip in network), None)
    if home is None:
        raise bad_request(
            "PrivateIPAddressNotInSubnet",
            f"Private static IP address {address} does not belong to the range of subnet prefix {prefix}.",
        )
    if int(ip) - int(home.network_address) < RESERVED_PER_SUBNET - 1 or ip == home.broadcast_address:
        raise bad_request(
            "PrivateIPAddressInReservedRange",
            f"Private static IP address {address} falls within reserved IP range of subnet prefix {prefix}.",
        )
    holder = taken_addresses(state, subnet_id).get(address)
    if holder and holder.lower() != owner_id.lower():
        raise bad_request(
            "PrivateIPAddressIsAllocated",
            f"IP configuration {owner_id}/ipConfigurations is using the private IP address {address} which is already "
            f"allocated to resource {holder}.",
        )
