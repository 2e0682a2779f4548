"""The node's packet filter says what the port table says."""

from __future__ import annotations

import re

import pytest

from cloud_init.bundle import firewall
from plan.azure.model import AzurePlan
from plan.vocabulary import Segment
from tests.unit.cloud_init.rendered import KINDS, built, plans

ACCEPT = re.compile(r"^ {8}ip saddr \{ (.*) \} tcp dport \{ (.*) \} accept comment \"(.*)\"$", re.MULTILINE)


def accepted(plan: AzurePlan) -> dict[str, tuple[set[str], str]]:
    """By flow: who may come, and to which ports."""
    found = ACCEPT.findall(firewall.file(plan).text)
    return {name: (set(sources.split(", ")), ports) for sources, ports, name in found}


@pytest.mark.parametrize("kind", KINDS)
def test_it_lets_in_the_callers_of_the_port_table_and_nobody_else(kind: str) -> None:
    plan = plans()[kind]
    subnets = plan.addresses.subnets
    expected = {
        flow.name: ({str(subnets[zone]) for zone in flow.callers}, ", ".join(flow.port_ranges))
        for flow in plan.flows
        if flow.listener is Segment.NODES and flow.callers != (Segment.LOOPBACK,) and flow.name != "ssh"
    }
    assert accepted(plan) == expected
    assert expected["wrapper"][0] == {str(subnets[Segment.GATEWAY])}


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_does_not_name_is_refused_last(kind: str) -> None:
    lines = [line.strip() for line in firewall.file(plans()[kind]).text.splitlines()]
    verdicts = [line for line in lines if re.search(r"\b(accept|reject|drop)\b", line) and not line.startswith("#")]
    assert verdicts[0].endswith("policy accept;")  # for what is not TCP: DHCP, ICMP
    assert verdicts[-1] == "meta l4proto tcp counter reject with tcp reset"
    assert sum("reject" in line for line in verdicts) == 1


def test_operators_are_never_locked_out() -> None:
    for kind in KINDS:
        assert "        tcp dport { 22 } accept" in firewall.file(plans()[kind]).text


def test_every_bundle_brings_it_and_its_package() -> None:
    for kind in KINDS:
        files = built(kind).files
        assert files[f"rootfs{firewall.PATH}"].decode() == firewall.file(plans()[kind]).text
        assert b'"nftables"' in files[f"nodes/{plans()[kind].nodes[0].name}/node.json"]
