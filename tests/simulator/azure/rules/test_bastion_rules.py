"""The security group of AzureBastionSubnet: the documented rules, word for word."""

import pytest

from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError

BASTION_RULES = [
    b.rule("https", 100, sourceAddressPrefix="Internet", destinationPortRange="443"),
    b.rule("control", 110, sourceAddressPrefix="GatewayManager", destinationPortRange="443"),
    b.rule("probe", 120, sourceAddressPrefix="AzureLoadBalancer", destinationPortRange="443"),
    *(
        b.rule(
            f"data-plane-{direction.lower()}",
            130,
            direction=direction,
            protocol="*",
            sourceAddressPrefix="VirtualNetwork",
            destinationAddressPrefix="VirtualNetwork",
            destinationPortRange=None,
            destinationPortRanges=["8080", "5701"],
        )
        for direction in ("Inbound", "Outbound")
    ),
    b.rule(
        "shells",
        140,
        direction="Outbound",
        protocol="*",
        destinationAddressPrefix="VirtualNetwork",
        destinationPortRange=None,
        destinationPortRanges=["22", "3389"],
    ),
    b.rule("azure", 150, direction="Outbound", destinationAddressPrefix="AzureCloud", destinationPortRange="443"),
    b.rule(
        "http", 160, direction="Outbound", protocol="*", destinationAddressPrefix="Internet", destinationPortRange="80"
    ),
]
NOT_COMPLIANT = (
    r'Code="NetworkSecurityGroupNotCompliantForAzureBastionSubnet" Message="Network security group nsg does not have '
    r"necessary rules for Azure Bastion Subnet AzureBastionSubnet"
)


def bastion_subnet(group):
    return b.subnet("AzureBastionSubnet", "10.0.1.0/26", networkSecurityGroup={"id": group.id})


def test_bastions_subnet_takes_the_documented_rules_and_more(ground):
    group = b.nsg(ground, *BASTION_RULES, b.rule("deny", 4096, access="Deny"))
    assert b.vnet(ground, bastion_subnet(group)).id


@pytest.mark.parametrize("index", range(len(BASTION_RULES)))
@pytest.mark.parametrize(
    "change",
    [None, {"protocol": "Udp"}, {"sourceAddressPrefix": "10.0.0.0/16"}, {"destinationAddressPrefix": "10.0.0.0/16"}],
    ids=["missing", "protocol", "source", "destination"],
)
def test_bastions_subnet_refuses_rules_that_are_merely_equivalent(ground, index, change):
    other = [{**BASTION_RULES[index], **change}] if change else []
    group = b.nsg(ground, *BASTION_RULES[:index], *other, *BASTION_RULES[index + 1 :])
    with pytest.raises(RefusedError, match=NOT_COMPLIANT):
        b.vnet(ground, bastion_subnet(group))


def test_bastions_group_cannot_lose_a_rule_nor_a_standalone_subnet_lack_one(ground):
    group = b.nsg(ground, *BASTION_RULES)
    b.vnet(ground, bastion_subnet(group))
    with pytest.raises(RefusedError, match=NOT_COMPLIANT):
        ground.change(group, securityRules=BASTION_RULES[1:])
    other = b.nsg(ground, name="bare")
    body = b.in_group(
        virtualNetworkName="vnet",
        subnetName="AzureBastionSubnet",
        addressPrefix="10.0.1.0/26",
        networkSecurityGroup={"id": other.id},
    )
    with pytest.raises(RefusedError, match=r"NetworkSecurityGroupNotCompliant.*group bare "):
        ground.create("network:Subnet", "bastion", body)
