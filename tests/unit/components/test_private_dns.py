from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from components.private_dns import PrivateDns, PrivateDnsArgs
from components.private_endpoint import PrivateEndpoint, PrivateEndpointArgs
from simulator.plugin.values import UNKNOWN
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recording, run_program

VNET_ID = arm_id("Microsoft.Network/virtualNetworks", "vnet")
VAULT_ID = arm_id("Microsoft.KeyVault/vaults", "vault")
ZONES = ("privatelink.vaultcore.azure.net", "privatelink.azure-api.net")
ZONE, LINK = "privatedns:PrivateZone", "privatedns:VirtualNetworkLink"
ENDPOINT, GROUP = "network:PrivateEndpoint", "network:PrivateDnsZoneGroup"


@cache
def built(preview: bool = False) -> Recording:
    """Two zones and two endpoints, the second after the first."""

    def program() -> Mapping[str, Any]:
        dns = PrivateDns("dns", PrivateDnsArgs(scope=scope(plan()), vnet_id=VNET_ID, zones=ZONES))
        first = _endpoint("vault", dns.zone_ids[ZONES[0]])
        _endpoint("gateway", dns.zone_ids[ZONES[1]], first)
        return {"zones": dict(dns.zone_ids)}

    return run_program(program, preview=preview)


def _endpoint(name: str, zone_id: Any, *after: PrivateEndpoint) -> PrivateEndpoint:
    return PrivateEndpoint(
        name,
        PrivateEndpointArgs(
            scope=scope(plan()),
            endpoint_name=name,
            subnet_id=f"{VNET_ID}/subnets/endpoints",
            target_id=VAULT_ID,
            group_id=name,
            zone_id=zone_id,
            after=[other.ready for other in after],
        ),
    )


def test_each_zone_is_linked_to_the_vnet_and_registers_nothing(preview: bool) -> None:
    recording = built(preview)
    assert {zone["privateZoneName"] for zone in recording.of(ZONE)} == set(ZONES)
    links = {link["privateZoneName"]: link for link in recording.of(LINK)}
    assert set(links) == set(ZONES)
    for link in links.values():
        assert link["virtualNetwork.id"] == VNET_ID
        assert link["registrationEnabled"] is False
        assert link["virtualNetworkLinkName"] == "huddleai-dev-vnet"
    assert {resource["location"] for resource in (*recording.of(ZONE), *links.values())} == {"global"}


def test_a_zone_has_only_tags_that_azure_keeps_on_it() -> None:
    tags = {"cost centre": "a", "team:owner": "b", "1st": "c", "plain-one": "d"}
    args = PrivateDnsArgs(scope=scope(plan(tags=tags)), vnet_id=VNET_ID, zones=ZONES)
    recording = run_program(lambda: {"zones": dict(PrivateDns("dns", args).zone_ids)})
    for resource in (*recording.of(ZONE), *recording.of(LINK)):
        assert set(resource["tags"]) == {"project", "stack", "environment", "owner", "cost-centre", "plain-one"}


def test_a_zone_has_fifteen_tags_the_programs_own_among_them() -> None:
    args = PrivateDnsArgs(
        scope=scope(plan(tags={f"tag-{number}": "x" for number in range(38)})), vnet_id=VNET_ID, zones=ZONES
    )
    recording = run_program(lambda: {"zones": dict(PrivateDns("dns", args).zone_ids)})
    for resource in (*recording.of(ZONE), *recording.of(LINK)):
        assert len(resource["tags"]) == 15
        assert {"project", "stack", "environment", "owner"} <= set(resource["tags"])


def test_zone_ids_are_the_zones_own(preview: bool) -> None:
    recording = built(preview)
    for zone in recording.of(ZONE):
        assert recording.exports["zones"][zone["privateZoneName"]] == (UNKNOWN if preview else zone.id)


def test_an_endpoint_stands_in_its_subnet_before_its_service(preview: bool) -> None:
    endpoint = built(preview).one(ENDPOINT, "vault-endpoint")
    assert endpoint["privateEndpointName"] == "huddleai-dev-vault-pe"
    assert endpoint["subnet.id"] == f"{VNET_ID}/subnets/endpoints"
    assert endpoint["privateLinkServiceConnections"] == [
        {"name": "vault", "privateLinkServiceId": VAULT_ID, "groupIds": ["vault"]}
    ]


def test_an_endpoints_name_is_written_into_a_zone_that_the_vnet_sees(preview: bool) -> None:
    recording = built(preview)
    group, endpoint = recording.one(GROUP, "vault-dns"), recording.one(ENDPOINT, "vault-endpoint")
    zone = next(zone for zone in recording.of(ZONE) if zone["privateZoneName"] == ZONES[0])
    link = next(link for link in recording.of(LINK) if link["privateZoneName"] == ZONES[0])
    assert group["privateEndpointName"] == endpoint["privateEndpointName"]
    assert group["privateDnsZoneConfigs.0.privateDnsZoneId"] == (UNKNOWN if preview else zone.id)
    assert recording.waits_for(group, link)
    assert recording.waits_for(group, endpoint)


def test_endpoints_can_be_made_one_after_the_other() -> None:
    recording = built()
    first, second = recording.one(GROUP, "vault-dns"), recording.one(ENDPOINT, "gateway-endpoint")
    assert recording.waits_for(second, first)
    assert not recording.waits_for(recording.one(ENDPOINT, "vault-endpoint"), second)


def test_an_endpoint_without_a_zone_leaves_its_name_to_azure_policy() -> None:
    recording = run_program(lambda: _endpoint("vault", None) and None)
    assert len(recording.of(ENDPOINT)) == 1
    assert recording.of(GROUP) == []
