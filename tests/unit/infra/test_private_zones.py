"""Whether a VNet resolves a zone of ours already, asked of Azure's stand-in before anything is created."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from infra.operations.arm import Arm
from infra.operations.private_zones import in_the_way
from infra.targets import azure
from plan.azure_network import PrivateLink
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store
from tests.unit.infra.test_arm import running
from tests.unit.stack_values import plan

SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000"
VNET = f"{SUBSCRIPTION}/resourceGroups/hub/providers/Microsoft.Network/virtualNetworks/hub"
OTHER_VNET = VNET.replace("Networks/hub", "Networks/spoke")
Look = Callable[..., list[str]]


def zone(group: str, name: str = PrivateLink.VAULT) -> str:
    return f"{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Network/privateDnsZones/{name}"


@pytest.fixture
def look(tmp_path: Path) -> Look:
    def asked(zones: dict[str, str], **network: object) -> list[str]:
        """What stands in the way, where `zones` (ids) are each linked to a VNet."""
        store = Store(tmp_path / "azure.json")
        with store.transaction() as state:
            for zone_id, vnet in zones.items():
                link = {"virtualNetwork": {"id": vnet}}
                state.put(Resource(zone_id, "azure-native:privatedns:PrivateZone", {}))
                state.put(
                    Resource(f"{zone_id}/virtualNetworkLinks/a", "azure-native:privatedns:VirtualNetworkLink", link)
                )
        with running(serve(store, page=1)) as endpoint, Arm(endpoint, None) as arm:
            return list(in_the_way(arm, plan(network={"existing_vnet": VNET, **network})))

    return asked


def test_another_owners_zone_is_named_with_the_setting_for_it(look: Look) -> None:
    (sentence,) = look({zone("hub"): VNET.upper(), zone("hub", PrivateLink.FILES): VNET})
    assert zone("hub") in sentence
    assert "network.private_dns_zones" in sentence


def test_a_zones_name_has_no_case(look: Look) -> None:
    assert len(look({zone("hub", PrivateLink.VAULT.upper()): VNET})) == 1


@pytest.mark.parametrize(
    ("zones", "network"),
    [
        ({}, {}),
        ({zone("hub"): OTHER_VNET}, {}),
        ({zone("hub", PrivateLink.GATEWAY): VNET}, {}),
        ({zone("huddleai-DEV-rg"): VNET}, {}),
        ({zone("hub"): VNET}, {"private_dns_zones": [zone("hub")]}),
        ({zone("hub"): VNET}, {"private_dns": "policy"}),
        ({zone("hub"): VNET}, {"existing_vnet": None}),
    ],
    ids=["none", "another VNet", "another zone", "our own", "adopted", "the policy's", "a VNet of our own"],
)
def test_nothing_else_stands_in_the_way(look: Look, zones: dict[str, str], network: dict[str, object]) -> None:
    assert look(zones, **network) == []


def refused(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> int:
    """What `make up` gets before it starts pulumi; nothing else stands in its way."""
    monkeypatch.setenv("ARM_ENDPOINT", endpoint)
    monkeypatch.setattr(azure.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0))
    return azure.refused_before("up", plan(network={"existing_vnet": VNET}))


def test_up_does_not_begin_with_a_zone_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "azure.json")
    with running(serve(store)) as endpoint:
        assert refused(monkeypatch, endpoint) == 0
        with store.transaction() as state:
            link = {"virtualNetwork": {"id": VNET}}
            state.put(Resource(zone("hub"), "azure-native:privatedns:PrivateZone", {}))
            state.put(
                Resource(f"{zone('hub')}/virtualNetworkLinks/a", "azure-native:privatedns:VirtualNetworkLink", link)
            )
        assert refused(monkeypatch, endpoint) == 1
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("error: the VNet resolves privatelink.vaultcore.azure.net in ")


def test_whoever_may_not_look_is_told_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(403)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Refusing)) as endpoint:
        assert refused(monkeypatch, endpoint) == 0
    assert capsys.readouterr().err.startswith(
        "warning: whether the VNet has our private DNS zones already is not known"
    )
