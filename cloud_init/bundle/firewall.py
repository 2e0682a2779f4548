"""The port table as the node's own packet filter: a second lock behind the network's security groups.

It closes what a program opens wider than the table says (Ray binds some of its ports to the node's address whatever it
is told), and it is there where no security group is. See docs/decisions/0005.
"""

from __future__ import annotations

from cloud_init.files import NodeFile, text_file
from cloud_init.templating import render
from plan.model import FleetPlan
from plan.vocabulary import Segment

PATH = "/etc/huddle/firewall.nft"
PACKAGE = "nftables"
_SSH = "ssh"
"""The operators' way in is for the network to decide: a mistake in the table must not lock them out."""


def file(plan: FleetPlan) -> NodeFile:
    """The rules as `nft --file` reads them; loading them again replaces the old ones at once."""
    flows = [flow for flow in plan.flows if flow.listener is Segment.NODES]
    rules = [
        (flow.name, sorted(str(plan.callers[segment]) for segment in flow.callers), flow.port_ranges)
        for flow in flows
        if not flow.loopback_only and flow.name != _SSH
    ]
    (ssh,) = (flow for flow in flows if flow.name == _SSH)
    return text_file(PATH, render("etc/firewall.nft.j2", rules=rules, ssh=ssh.port_ranges))
