from __future__ import annotations

from functools import cache

import pytest

from components.access import Bastion, BastionArgs
from plan.vocabulary import BastionSku
from simulator.plugin.values import UNKNOWN
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recording, run_program

HOST, ADDRESS = "network:BastionHost", "network:PublicIPAddress"
VNET_ID = arm_id("Microsoft.Network/virtualNetworks", "vnet")
SUBNET_ID = f"{VNET_ID}/subnets/AzureBastionSubnet"


@cache
def built(sku: BastionSku, tunnel: bool, preview: bool = False) -> Recording:
    subnet_id = None if sku is BastionSku.DEVELOPER else SUBNET_ID
    return run_program(
        lambda: {
            "id": Bastion("bastion", BastionArgs(scope(plan()), sku, tunnel, subnet_id, VNET_ID)).bastion_id,
        },
        preview=preview,
    )


@pytest.mark.parametrize(
    ("sku", "tunnel"),
    [(BastionSku.BASIC, False), (BastionSku.STANDARD, False), (BastionSku.STANDARD, True), (BastionSku.PREMIUM, True)],
)
def test_a_bastion_of_ones_own_has_a_subnet_and_a_fixed_address(sku: BastionSku, tunnel: bool, preview: bool) -> None:
    recording = built(sku, tunnel, preview)
    host, address = recording.one(HOST), recording.one(ADDRESS)
    assert host["bastionHostName"] == "huddleai-dev-bastion"
    assert host["sku.name"] == sku.value
    assert host["enableTunneling"] is tunnel
    assert host["virtualNetwork"] is None
    assert len(host["ipConfigurations"]) == 1
    assert host["ipConfigurations.0.subnet.id"] == SUBNET_ID
    assert host["ipConfigurations.0.publicIPAddress.id"] == (UNKNOWN if preview else address.id)
    assert (address["publicIPAllocationMethod"], address["sku.name"]) == ("Static", "Standard")
    assert recording.exports["id"] == (UNKNOWN if preview else host.id)


def test_the_shared_developer_bastion_needs_the_vnet_alone(preview: bool) -> None:
    recording = built(BastionSku.DEVELOPER, False, preview)
    host = recording.one(HOST)
    assert host["sku.name"] == "Developer"
    assert host["virtualNetwork.id"] == VNET_ID
    assert host["ipConfigurations"] is None
    assert host["enableTunneling"] is False
    assert not recording.of(ADDRESS)


def test_a_bastion_of_ones_own_without_a_subnet_is_refused() -> None:
    with pytest.raises(ValueError, match="Standard needs its own subnet"):
        run_program(
            lambda: {
                "id": Bastion("b", BastionArgs(scope(plan()), BastionSku.STANDARD, True, None, VNET_ID)).bastion_id
            }
        )
