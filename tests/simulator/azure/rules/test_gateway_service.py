"""API Management services: tiers and networks, names that stay reserved."""

import json

import pytest

from simulator.azure import portal
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import PartialError, RefusedError

INTEGRATION = "Microsoft.Web/serverFarms"
INJECTION = "Microsoft.Web/hostingEnvironments"
CLASSIC_RULES = (
    b.rule("management", 100, sourceAddressPrefix="ApiManagement", destinationPortRange="3443"),
    b.rule("probe", 110, sourceAddressPrefix="AzureLoadBalancer", destinationPortRange="6390"),
)


# --- tiers and networks


@pytest.mark.parametrize(
    ("tier", "kind", "prefix", "delegation"),
    [
        ("StandardV2", "External", "10.0.2.0/27", INTEGRATION),
        ("PremiumV2", "External", "10.0.2.0/27", INTEGRATION),
        ("PremiumV2", "Internal", "10.0.2.0/27", INJECTION),
        ("Developer", "Internal", "10.0.2.0/29", None),
        ("Premium", "External", "10.0.2.0/29", None),
    ],
)
def test_networks_that_work(ground, tier, kind, prefix, delegation):
    network = b.gateway_network(ground, prefix, delegation, *CLASSIC_RULES)
    made = b.gateway(ground, tier=tier, **b.attached(network, kind))
    assert made.outputs["gatewayUrl"] == "https://apim-test.azure-api.net"
    assert ("privateIPAddresses" in made.outputs) == (kind == "Internal" and tier in ("Developer", "Premium"))


@pytest.mark.parametrize(
    ("tier", "kind", "prefix", "delegation", "words"),
    [
        (
            "StandardV2",
            "Internal",
            "10.0.2.0/24",
            INTEGRATION,
            "Setting up 'Internal' Internal Virtual Network Type is not supported for Sku Type 'StandardV2'.",
        ),
        ("BasicV2", "External", "10.0.2.0/24", INTEGRATION, "not supported for Sku Type 'BasicV2'"),
        ("StandardV2", "External", "10.0.2.0/24", None, r"SubnetMissingRequiredDelegation.*Microsoft.Web/serverFarms"),
        ("StandardV2", "External", "10.0.2.0/24", INJECTION, r"SubnetMissingRequiredDelegation"),
        ("PremiumV2", "Internal", "10.0.2.0/24", INTEGRATION, r"Microsoft.Web/hostingEnvironments"),
        ("Developer", "Internal", "10.0.2.0/24", INTEGRATION, r"SubnetHasDelegations"),
        ("StandardV2", "External", "10.0.2.0/28", INTEGRATION, r"SubnetTooSmall.*/27 is the smallest"),
        ("Premium", "Internal", "10.0.2.0/30", None, r"SubnetTooSmall.*/29"),
    ],
)
def test_networks_that_do_not_work(ground, tier, kind, prefix, delegation, words):
    network = b.gateway_network(ground, prefix, delegation)
    with pytest.raises(RefusedError, match=words):
        b.gateway(ground, tier=tier, **b.attached(network, kind))


def test_the_subnet_needs_a_security_group(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION, guarded=False)
    with pytest.raises(RefusedError, match=r"must have a network security group"):
        b.gateway(ground, **b.attached(network))


def test_the_subnet_is_dedicated(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION)
    ground.create("network:NetworkInterface", "nic", b.nic_inputs(f"{network.id}/subnets/gateway"))
    with pytest.raises(RefusedError, match=r"must be dedicated.*networkInterfaces/nic"):
        b.gateway(ground, **b.attached(network))


def test_classic_injection_without_its_rules_fails_late(ground):
    network = b.gateway_network(ground, "10.0.2.0/28", None)
    with pytest.raises(
        PartialError, match=r"Unable to activate API service.*inbound port 3443 from ApiManagement is blocked"
    ):
        b.gateway(ground, tier="Developer", **b.attached(network, "Internal"))
    assert ground.state.of_type("apimanagement:ApiManagementService")[0].properties["provisioningState"] == "Failed"


def test_a_deny_above_the_needed_outbound_flow_fails_too(ground):
    deny = b.rule("deny", 200, direction="Outbound", access="Deny", destinationAddressPrefix="Internet")
    network = b.gateway_network(ground, "10.0.2.0/28", None, *CLASSIC_RULES, deny)
    with pytest.raises(PartialError, match=r"outbound port 443 to Storage is blocked"):
        b.gateway(ground, tier="Developer", **b.attached(network, "Internal"))


DENY = b.rule("deny", 4096, access="Deny", protocol="*")
UNITS = (
    b.rule("cache", 200, sourceAddressPrefix="10.0.2.0/27", destinationPortRange="6380-6383"),
    b.rule("counters", 210, sourceAddressPrefix="10.0.2.0/27", destinationPortRange="4290", protocol="Udp"),
)


@pytest.mark.parametrize(
    ("rules", "words"),
    [(UNITS[1:], "inbound port 6380 from VirtualNetwork"), (UNITS[:1], "inbound port 4290 from VirtualNetwork")],
)
def test_units_that_cannot_talk_are_refused(ground, rules, words):
    network = b.gateway_network(ground, "10.0.2.0/27", None, *CLASSIC_RULES, *rules, DENY)
    with pytest.raises(PartialError, match=rf"{words} is blocked"):
        b.gateway(ground, tier="Premium", capacity=2, **b.attached(network, "Internal"))


@pytest.mark.parametrize(("units", "rules"), [(2, UNITS), (1, ())])
def test_units_that_can_talk_or_are_alone(ground, units, rules):
    network = b.gateway_network(ground, "10.0.2.0/27", None, *CLASSIC_RULES, *rules, DENY)
    assert b.gateway(ground, tier="Premium", capacity=units, **b.attached(network, "Internal")).id


def test_public_access_cannot_be_disabled_at_creation_nor_without_an_endpoint(ground):
    words = r"Blocking all public network access by setting property `publicNetworkAccess`.*not enabled during"
    with pytest.raises(RefusedError, match=words):
        b.gateway(ground, publicNetworkAccess="Disabled")
    made = b.gateway(ground)
    with pytest.raises(RefusedError, match=r"approved private endpoint"):
        ground.change(made, publicNetworkAccess="Disabled")
    network = b.vnet(ground)
    connection = {"name": "c", "privateLinkServiceId": made.id, "groupIds": ["Gateway"]}
    body = b.in_group(
        privateEndpointName="pe",
        subnet={"id": f"{network.id}/subnets/nodes"},
        privateLinkServiceConnections=[connection],
    )
    ground.create("network:PrivateEndpoint", "pe", body)
    assert ground.change(made, publicNetworkAccess="Disabled").outputs["publicNetworkAccess"] == "Disabled"


@pytest.mark.parametrize(
    ("tier", "capacity", "allowed"),
    [("Consumption", 1, "0"), ("Developer", 2, "1"), ("StandardV2", 11, "1 to 10"), ("StandardV2", 0, "1 to 10")],
)
def test_capacity(ground, tier, capacity, allowed):
    with pytest.raises(RefusedError, match=rf"sku.capacity of '{tier}' is {capacity}, allowed: {allowed}\."):
        b.gateway(ground, tier=tier, capacity=capacity)


def test_tiers_that_cannot_become_each_other(ground):
    made = b.gateway(ground, tier="Developer")
    with pytest.raises(RefusedError, match=r"Changing Sku Type from 'Developer' to 'StandardV2' is not supported"):
        ground.change(made, sku={"name": "StandardV2", "capacity": 1})
    with pytest.raises(RefusedError, match=r"ValidationError.*'sku.name' has the value 'Deluxe'; allowed: Developer, "):
        ground.change(made, sku={"name": "Deluxe", "capacity": 1})


def test_the_gateways_subnet_outlives_it(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION)
    made = b.gateway(ground, **b.attached(network))
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted.*serviceAssociationLinks/AppServiceLink"):
        ground.delete(network)
    bare = b.vnet_inputs(b.subnet("gateway", "10.0.2.0/27"))
    with pytest.raises(RefusedError, match=r"SubnetMissingRequiredDelegation"):
        ground.update(network, bare)
    ground.delete(made)
    ground.delete(network)


LINK_STAYS = "faults: [{kind: subnet_link, seconds: 3600}]"


def test_a_link_that_outlives_its_service_keeps_the_subnet_but_not_the_group(ground, monkeypatch):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION)
    made = b.gateway(ground, **b.attached(network))
    monkeypatch.setenv("AZURE_SIMULATOR_FAULTS", LINK_STAYS)
    ground.delete(made)
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted.*serviceAssociationLinks/AppServiceLink"):
        ground.delete(network)
    group = ground.import_("resources:ResourceGroup", "rg", made.id.partition("/providers/")[0])
    ground.delete(group)
    assert not ground.cloud.store.read().resources


# --- names that stay reserved


def test_soft_delete_reserves_the_name_until_purged(ground, monkeypatch, capsys):
    ground.delete(b.gateway(ground))
    with pytest.raises(RefusedError, match=r"ServiceAlreadyExistsInSoftDeletedState.*apim-test was soft-deleted"):
        b.gateway(ground)
    monkeypatch.setenv("AZURE_SIMULATOR_STATE", str(ground.cloud.store.path))
    assert portal.main(["purge", "nothing"]) == 2
    assert "'nothing' is not soft-deleted" in capsys.readouterr().err
    assert portal.main(["purge", "APIM-test"]) == 0
    assert "simulated: purged" in capsys.readouterr().out
    assert b.gateway(ground).id


def test_soft_delete_ends_after_48_hours(ground):
    ground.delete(b.gateway(ground))
    with ground.cloud.store.transaction() as state:
        item = state.deleted[0]
        assert item.purge_at - item.deleted == 48 * 3600
        item.purge_at = item.deleted
    assert b.gateway(ground).id


def test_restore(ground):
    with pytest.raises(RefusedError, match=r"no soft-deleted service apim-test"):
        b.gateway(ground, restore=True)
    ground.delete(b.gateway(ground))
    assert "restore" not in b.gateway(ground, restore=True).outputs
    assert ground.state.deleted == []


def test_the_name_is_global(ground):
    b.gateway(ground)
    ground.create("resources:ResourceGroup", "two", {"resourceGroupName": "rg-two"})
    body = {**b.gateway_inputs(serviceName="APIM-TEST"), "resourceGroupName": "rg-two"}
    with pytest.raises(RefusedError, match=r"ServiceAlreadyExists"):
        ground.create("apimanagement:ApiManagementService", "two", body)


def test_the_portal_shows_resources_and_a_timeline(ground, monkeypatch, capsys):
    monkeypatch.setenv("AZURE_SIMULATOR_STATE", str(ground.cloud.store.path))
    ground.delete(b.gateway(ground))
    assert portal.main(["show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["simulated"] is True and shown["soft_deleted"][0]["name"] == "apim-test"
    assert portal.main(["timeline"]) == 0
    spans = json.loads(capsys.readouterr().out)
    assert [span["operation"] for span in spans] == ["create", "create", "delete"]
    assert all(0 <= span["start_s"] <= span["end_s"] for span in spans)
