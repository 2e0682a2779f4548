"""The rules that a security group on AzureBastionSubnet must hold, as written: equivalent ones do not count.

The table is docs/facts/azure.md#bastion. Which fields Azure compares is not documented; here all of them count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.azure.errors import bad_request
from simulator.azure.rules.network import subnets
from simulator.azure.state.store import State
from simulator.plugin.values import dig

_ANY: Final = "*"


@dataclass(frozen=True)
class Needed:
    """One documented rule."""

    direction: str
    source: str
    destination: str
    ports: frozenset[str]
    protocol: str


def _needed(direction: str, source: str, destination: str, ports: str, protocol: str) -> Needed:
    return Needed(direction, source, destination, frozenset(ports.split()), protocol)


NEEDED: Final = (
    _needed("Inbound", "Internet", _ANY, "443", "Tcp"),
    _needed("Inbound", "GatewayManager", _ANY, "443", "Tcp"),
    _needed("Inbound", "AzureLoadBalancer", _ANY, "443", "Tcp"),
    _needed("Inbound", "VirtualNetwork", "VirtualNetwork", "8080 5701", _ANY),
    _needed("Outbound", _ANY, "VirtualNetwork", "22 3389", _ANY),
    _needed("Outbound", _ANY, "AzureCloud", "443", "Tcp"),
    _needed("Outbound", "VirtualNetwork", "VirtualNetwork", "8080 5701", _ANY),
    _needed("Outbound", _ANY, "Internet", "80", _ANY),
)


def require_on_subnets(state: State, bodies: Iterable[Mapping[str, Any]]) -> None:
    """Look at subnets that are about to be written.

    Raises:
        ArmError: AzureBastionSubnet has a group that lacks a rule.
    """
    for body in bodies:
        group = state.get(str(dig(body, "networkSecurityGroup.id", "")))
        if group is not None and str(body.get("name")) == subnets.BASTION_SUBNET:
            _require(group.name, group.properties.get("securityRules"))


def require_on_group(state: State, group_id: str, name: str, rules: Iterable[Mapping[str, Any]]) -> None:
    """Look at a group that is about to be written.

    Raises:
        ArmError: it is AzureBastionSubnet's, and lacks a rule.
    """
    for vnet in state.of_type("network:VirtualNetwork"):
        for body in vnet.properties.get("subnets", []):
            own = str(dig(body, "networkSecurityGroup.id", "")).lower() == group_id.lower()
            if own and str(body.get("name")) == subnets.BASTION_SUBNET:
                _require(name, rules)


def _require(group: str, rules: Iterable[Mapping[str, Any]] | None) -> None:
    if not set(NEEDED) <= set(_written(rules or [])):
        raise bad_request(
            "NetworkSecurityGroupNotCompliantForAzureBastionSubnet",
            f"Network security group {group} does not have necessary rules for Azure Bastion Subnet "
            f"{subnets.BASTION_SUBNET}.",
        )


def _written(rules: Iterable[Mapping[str, Any]]) -> Iterator[Needed]:
    for rule in rules:
        if rule.get("access") == "Allow" and rule.get("sourcePortRange") == _ANY:
            ports = [rule.get("destinationPortRange"), *(rule.get("destinationPortRanges") or [])]
            yield Needed(
                str(rule.get("direction")),
                str(rule.get("sourceAddressPrefix")),
                str(rule.get("destinationAddressPrefix")),
                frozenset(str(port) for port in ports if port),
                str(rule.get("protocol")),
            )
