"""Compare what listens on a machine with the port table."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from plan.azure.model import AzurePlan
from plan.model import NodePlan
from plan.vocabulary import Segment

BOUND_WIDER = frozenset({"ray-client", "ray-dashboard-agent-http", "ray-dashboard-metrics", "torch-rendezvous"})
"""Flows meant for loopback that their program nevertheless binds wider, with any option.

Ray 2.56.1 binds its three to the node's address: the first two ask for the cluster's token, the last one shows Ray's
own metrics. Torch binds its store to every address, and the store asks for nothing. What keeps other hosts away is the
nodes' packet filter, their security group, and the units' IPAddressAllow.
"""
BOUND_EVERYWHERE = frozenset({"ssh", "torch-rendezvous"})
"""Flows that listen on every address of the machine."""
_ANYWHERE = {"0.0.0.0", "::", "*"}
_OF_THE_LAB = {"169.254.169.254:80", "169.254.169.253:443"}
"""The stand-ins for Azure's endpoints, which in Azure are elsewhere."""


def wrong_listeners(plan: AzurePlan, node: NodePlan, listening: Iterable[str]) -> list[str]:
    """Of sockets `address:port`, those that the table lacks or allows on another address only, with the reason.

    A flow for loopback only must be bound to loopback, except for those that are bound wider
    (`BOUND_WIDER`); any other one to the node's own address.
    """
    flows = [flow for flow in plan.flows if flow.listener is Segment.NODES]
    problems = []
    for socket in sorted(set(listening) - _OF_THE_LAB):
        address, _, port = socket.rpartition(":")
        address = address.strip("[]").partition("%")[0]
        known = [flow for flow in flows if any(first <= int(port) <= last for first, last in flow.ports)]
        if not known:
            problems.append(f"{socket}: not in the port table")
            continue
        (flow,) = known
        wide = flow.name in BOUND_WIDER or not flow.loopback_only
        here = address in _ANYWHERE and flow.name in BOUND_EVERYWHERE
        here = here or (address not in _ANYWHERE and ip_address(address).is_loopback)
        if not here and not (wide and address == str(node.address)):
            problems.append(f"{socket}: {flow.name} listens on the wrong address")
    return problems
