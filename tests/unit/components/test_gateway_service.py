from __future__ import annotations

from typing import Any

import pulumi
import pytest

from components.gateway.internal_dns import told_addresses, zone_names
from plan.azure_facts import GATEWAY_TIERS
from plan.vocabulary import GatewayInbound, GatewayTier
from tests.unit.azure_outputs import CALLS
from tests.unit.builders import plan
from tests.unit.components.gateway_program import (
    CLASSIC,
    COMBINATIONS,
    PRIVATE_ADDRESS,
    SERVICE,
    SUBSCRIPTION,
    TWO_PRODUCTS,
    VNET,
    build,
    recorded,
    written,
)
from tests.unit.recording import Recording, assert_no_canary_outside_secrets

# --- The service


@pytest.mark.parametrize(("tier", "inbound"), COMBINATIONS)
def test_every_tier_and_way_in_makes_a_whole_gateway(tier: GatewayTier, inbound: GatewayInbound, preview: bool) -> None:
    recording = recorded(tier, inbound, preview)
    service = recording.one(SERVICE)
    assert service["serviceName"].startswith("huddleai-dev-")
    assert service["sku"] == {"name": tier.value, "capacity": 1}
    assert service["virtualNetworkType"] == ("Internal" if inbound is GatewayInbound.INTERNAL else "External")
    assert service["virtualNetworkConfiguration.subnetResourceId"] == f"{VNET}/subnets/gateway"
    assert service["identity"] == {"type": "None"}
    assert service["publicNetworkAccess"] == "Enabled"
    assert (service["developerPortalStatus"], service["legacyPortalStatus"]) == ("Enabled", "Disabled")
    timeout = GATEWAY_TIERS[tier].create_timeout
    assert service.timeouts == {"create": timeout, "update": timeout, "delete": timeout}
    assert len(recording.of("network:PublicIPAddress")) == (tier in CLASSIC)
    assert len(recording.of("network:PrivateEndpoint")) == (inbound is GatewayInbound.PRIVATE_ENDPOINT)
    assert bool(recording.of("privatedns:PrivateZone")) == (inbound is GatewayInbound.INTERNAL)
    assert len(recording.of(SUBSCRIPTION)) == 3
    assert_no_canary_outside_secrets(recording)


def test_public_access_is_closed_when_the_stack_says_so() -> None:
    gateway = {"inbound": "private-endpoint", "public_access": "disabled"}
    assert build(plan(gateway=gateway)).one(SERVICE)["publicNetworkAccess"] == "Disabled"


def test_a_service_takes_fifteen_tags_the_programs_own_among_them() -> None:
    kept = build(plan(tags={f"tag-{number}": "x" for number in range(38)})).one(SERVICE)["tags"]
    assert len(kept) == 15
    assert {"project", "stack", "environment"} <= set(kept)


@pytest.mark.parametrize(("stack", "protected"), [("dev", False), ("prod", True)])
def test_prod_protects_the_service_and_nothing_that_changes_with_the_stack_file(stack: str, protected: bool) -> None:
    recording = build(plan(stack))
    assert recording.one(SERVICE).protect is protected
    assert not any(resource.protect for resource in written(recording))


@pytest.mark.parametrize(("tier", "inbound"), [COMBINATIONS[0], (GatewayTier.STANDARD_V2, GatewayInbound.PUBLIC)])
def test_old_tls_is_off_and_weak_ciphers_too_where_a_tier_lets_one_choose(
    tier: GatewayTier, inbound: GatewayInbound
) -> None:
    properties = recorded(tier, inbound).one(SERVICE)["customProperties"]
    prefix = "Microsoft.WindowsAzure.ApiManagement.Gateway.Security."
    off = {key.removeprefix(prefix) for key, value in properties.items() if value == "False"}
    assert len(off) == len(properties)
    assert off >= {"Protocols.Tls10", "Protocols.Tls11", "Backend.Protocols.Tls10", "Backend.Protocols.Tls11"}
    assert ("Ciphers.TripleDes168" in off) == (tier in CLASSIC)
    assert not any("GCM_SHA384" in cipher or "ECDHE_RSA_WITH_AES_128_GCM" in cipher for cipher in off)


def test_a_classic_gateway_gets_a_fixed_address_of_its_own() -> None:
    recording = recorded(GatewayTier.PREMIUM, GatewayInbound.INTERNAL)
    address = recording.one("network:PublicIPAddress")
    assert address["publicIpAddressName"] == "huddleai-dev-gateway-ip"
    assert (address["sku.name"], address["publicIPAllocationMethod"]) == ("Standard", "Static")
    assert recording.one(SERVICE)["publicIpAddressId"] == address.id


# --- Private ways in


def test_a_private_endpoint_reaches_the_gateway_before_anything_is_written_into_it(preview: bool) -> None:
    recording = recorded(GatewayTier.STANDARD_V2, GatewayInbound.PRIVATE_ENDPOINT, preview)
    endpoint = recording.one("network:PrivateEndpoint")
    (connection,) = endpoint["privateLinkServiceConnections"]
    assert connection["groupIds"] == ["Gateway"]
    assert endpoint["privateEndpointName"] == "huddleai-dev-gateway-pe"
    assert endpoint["subnet.id"] == f"{VNET}/subnets/endpoints"
    (zone,) = recording.one("network:PrivateDnsZoneGroup")["privateDnsZoneConfigs"]
    assert zone["privateDnsZoneId"].endswith("/privatelink.azure-api.net")
    assert recording.waits_for(endpoint, recording.one("network:PublicIPPrefix"))
    assert recording.waits_for(endpoint, recording.one(SERVICE))
    for resource in written(recording):
        assert recording.waits_for(resource, endpoint), f"{resource.name} may be written while the endpoint is"


def test_azure_policy_may_write_the_private_endpoints_name() -> None:
    recording = build(plan(gateway={"inbound": "private-endpoint"}), gateway_zone_id=None)
    assert recording.of("network:PrivateDnsZoneGroup") == []
    endpoint = recording.one("network:PrivateEndpoint")
    assert all(recording.waits_for(resource, endpoint) for resource in written(recording))


# --- A service that is there already

GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub"
EXISTING = {"id": f"{GROUP}/providers/Microsoft.ApiManagement/service/contoso", "subnet": "10.9.0.0/27"}


def in_contoso(preview: bool = False, **changes: Any) -> Recording:
    found = {
        "id": EXISTING["id"],
        "gatewayUrl": "https://contoso.azure-api.net",
        "developerPortalUrl": "https://contoso.developer.azure-api.net",
    }
    calls = {**CALLS, "apimanagement:getApiManagementService": lambda _: found}
    gateway = {"existing": EXISTING, "products": TWO_PRODUCTS, "api_path": "llm/v1", **changes}
    return build(plan(gateway=gateway), preview, calls=calls, subnet_id=None)


def test_an_existing_service_is_looked_at_and_not_written(preview: bool) -> None:
    recording = in_contoso(preview)
    assert recording.of(SERVICE) == []
    assert recording.of("network:PublicIPAddress") == []
    assert ("apimanagement:getApiManagementService", {"resourceGroupName": "hub", "serviceName": "contoso"}) in (
        recording.calls
    )
    assert recording.exports["url"] == "https://contoso.azure-api.net"
    for resource in written(recording):
        assert (resource["resourceGroupName"], resource["serviceName"]) == ("hub", "contoso"), resource.name
    assert recording.one("apimanagement:Api")["path"] == "llm/v1"


def test_an_existing_service_keeps_its_own_diagnostics_and_logs() -> None:
    recording = in_contoso()
    assert recording.of("apimanagement:Diagnostic") == []
    assert recording.of("monitor:DiagnosticSetting") == []
    assert recording.one("apimanagement:ApiDiagnostic")["apiId"] == "dev-openai"


@pytest.mark.parametrize(
    ("tier", "hosts"),
    [
        (GatewayTier.PREMIUM, ["", ".portal", ".developer", ".management", ".scm"]),
        (GatewayTier.PREMIUM_V2, [""]),
    ],
)
def test_an_internal_gateways_names_resolve_to_its_address(tier: GatewayTier, hosts: list[str], preview: bool) -> None:
    recording = recorded(tier, GatewayInbound.INTERNAL, preview)
    name = recording.one(SERVICE)["serviceName"]
    zones = [zone["privateZoneName"] for zone in recording.of("privatedns:PrivateZone")]
    assert sorted(zones) == sorted(f"{name}{host}.azure-api.net" for host in hosts)
    records = recording.of("privatedns:PrivateRecordSet")
    assert len(records) == len(zones)
    for record in records:
        assert (record["relativeRecordSetName"], record["recordType"]) == ("@", "A")
        if not preview:
            assert record["aRecords"] == [{"ipv4Address": PRIVATE_ADDRESS}]
            zone = next(
                z for z in recording.of("privatedns:PrivateZone") if z["privateZoneName"] == record["privateZoneName"]
            )
            assert recording.waits_for(record, zone)
    for link in recording.of("privatedns:VirtualNetworkLink"):
        assert link["virtualNetwork.id"] == VNET
    assert not any(recording.waits_for(resource, records[0]) for resource in written(recording))


def test_the_stack_file_may_say_the_gateways_address(preview: bool) -> None:
    gateway = {"tier": "PremiumV2", "inbound": "internal", "private_address": "10.0.1.9"}
    record = build(plan(gateway=gateway), preview).one("privatedns:PrivateRecordSet")
    assert record["aRecords"] == [{"ipv4Address": "10.0.1.9"}], "known, though Azure may never tell"


@pytest.mark.parametrize("told", [None, []])
def test_an_address_that_nobody_says_is_told_with_the_key_to_set(told: list[str] | None) -> None:
    with pytest.raises(pulumi.RunError, match=r"ours and does not tell its private address.*gateway\.private_address"):
        told_addresses(told, "ours")


def test_no_zone_hides_other_peoples_gateways() -> None:
    for classic in (True, False):
        assert all(zone.startswith("ours.") for zone in zone_names("ours", classic=classic))
