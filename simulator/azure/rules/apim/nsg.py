"""Does the subnet's security group let an injected (classic) service live?

The table is docs/facts/api-management.md#classic-injection. Only the first rule that matches counts, then
Azure's defaults: traffic inside the virtual network and to the Internet is allowed, inbound traffic from elsewhere is
not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.azure.rules.network import subnets
from simulator.azure.state.store import State
from simulator.plugin.values import dig


@dataclass(frozen=True)
class Flow:
    """Traffic a classic service cannot do without."""

    direction: str
    peer: str
    port: int
    default_allowed: bool


NEEDED: Final = (
    Flow("Inbound", "ApiManagement", 3443, default_allowed=False),
    Flow("Inbound", "AzureLoadBalancer", 6390, default_allowed=True),
    Flow("Outbound", "Storage", 443, default_allowed=True),
    Flow("Outbound", "Sql", 1433, default_allowed=True),
    Flow("Outbound", "AzureKeyVault", 443, default_allowed=True),
)


def missing_rule(state: State, subnet_id: str) -> str | None:
    """The first needed flow that is blocked, in words."""
    body = subnets.body_of(state, subnet_id) or {}
    group = state.get(str(dig(body, "networkSecurityGroup.id", "")))
    rules = sorted(
        (group.properties if group else {}).get("securityRules", []), key=lambda rule: rule.get("priority", 0)
    )
    for flow in NEEDED:
        if not _allowed(rules, flow):
            arrow = "from" if flow.direction == "Inbound" else "to"
            return f"{flow.direction.lower()} port {flow.port} {arrow} {flow.peer} is blocked"
    return None


def _allowed(rules: Iterable[Mapping[str, Any]], flow: Flow) -> bool:
    for rule in rules:
        if rule.get("direction") == flow.direction and _matches(rule, flow):
            return rule.get("access") == "Allow"
    return flow.default_allowed


def _matches(rule: Mapping[str, Any], flow: Flow) -> bool:
    side = "source" if flow.direction == "Inbound" else "destination"
    peers = [rule.get(f"{side}AddressPrefix"), *(rule.get(f"{side}AddressPrefixes") or [])]
    # A service tag may carry a region: `Storage.EastUS`.
    names = {str(peer).split(".", 1)[0] for peer in peers if peer} | {str(peer) for peer in peers if peer}
    wide = {"*", "0.0.0.0/0", "Any"} | ({"Internet", "AzureCloud"} if flow.peer != "AzureLoadBalancer" else set())
    if not names & ({flow.peer} | wide):
        return False
    ports = [rule.get("destinationPortRange"), *(rule.get("destinationPortRanges") or [])]
    return any(_covers(str(port), flow.port) for port in ports if port is not None)


def _covers(port: str, wanted: int) -> bool:
    if port == "*":
        return True
    low, _, high = port.partition("-")
    return int(low) <= wanted <= int(high or low)
