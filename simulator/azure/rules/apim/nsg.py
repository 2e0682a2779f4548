"""Does the subnet's security group let an injected (classic) service live?

The table is docs/facts/api-management.md#classic-injection. Only the first rule that matches counts, then
Azure's defaults: traffic inside the virtual network and to the Internet is allowed, inbound traffic from elsewhere is
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

from simulator.azure.rules.network import subnets
from simulator.azure.state.store import State
from simulator.plugin.values import dig


@dataclass(frozen=True)
class Flow:
    """Traffic of a classic service."""

    direction: str
    peer: str
    port: int
    default_allowed: bool
    protocol: str = "Tcp"


NEEDED: Final = (
    Flow("Inbound", "ApiManagement", 3443, default_allowed=False),
    Flow("Inbound", "AzureLoadBalancer", 6390, default_allowed=True),
    Flow("Outbound", "Storage", 443, default_allowed=True),
    Flow("Outbound", "Sql", 1433, default_allowed=True),
    Flow("Outbound", "AzureKeyVault", 443, default_allowed=True),
)
"""What a service cannot do without."""
BETWEEN_UNITS: Final = (
    *(Flow("Inbound", "VirtualNetwork", port, default_allowed=True) for port in range(6380, 6384)),
    Flow("Inbound", "VirtualNetwork", 4290, default_allowed=True, protocol="Udp"),
)
"""What several units need to share cache and counters. Azure starts a service without it, and each unit then grants
every limit by itself; here it is refused, so that a rehearsal shows it."""


def missing_rule(state: State, subnet_id: str, units: int) -> str | None:
    """The first needed flow that is blocked, in words."""
    body = subnets.body_of(state, subnet_id) or {}
    group = state.get(str(dig(body, "networkSecurityGroup.id", "")))
    rules = sorted(
        (group.properties if group else {}).get("securityRules", []), key=lambda rule: rule.get("priority", 0)
    )
    own = {str(prefix) for prefix in [body.get("addressPrefix"), *(body.get("addressPrefixes") or [])] if prefix}
    for flow in (*NEEDED, *(BETWEEN_UNITS if units > 1 else ())):
        if not _allowed(rules, flow, own):
            arrow = "from" if flow.direction == "Inbound" else "to"
            return f"{flow.direction.lower()} port {flow.port} {arrow} {flow.peer} is blocked"
    return None


def _allowed(rules: Iterable[Mapping[str, Any]], flow: Flow, own: Set[str]) -> bool:
    """`own`: ranges of the service's subnet, which a rule between units may name."""
    for rule in rules:
        if rule.get("direction") == flow.direction and _matches(rule, flow, own):
            return rule.get("access") == "Allow"
    return flow.default_allowed


def _matches(rule: Mapping[str, Any], flow: Flow, own: Set[str]) -> bool:
    if rule.get("protocol") not in ("*", flow.protocol):
        return False
    side = "source" if flow.direction == "Inbound" else "destination"
    peers = [rule.get(f"{side}AddressPrefix"), *(rule.get(f"{side}AddressPrefixes") or [])]
    # A service tag may carry a region: `Storage.EastUS`.
    names = {str(peer).split(".", 1)[0] for peer in peers if peer} | {str(peer) for peer in peers if peer}
    wide = {"*", "0.0.0.0/0", "Any"} | ({"Internet", "AzureCloud"} if flow.peer != "AzureLoadBalancer" else set())
    if not names & ({flow.peer} | wide | (own if flow.peer == "VirtualNetwork" else set())):
        return False
    ports = [rule.get("destinationPortRange"), *(rule.get("destinationPortRanges") or [])]
    return any(_covers(str(port), flow.port) for port in ports if port is not None)


def _covers(port: str, wanted: int) -> bool:
    if port == "*":
        return True
    low, _, high = port.partition("-")
    return int(low) <= wanted <= int(high or low)
