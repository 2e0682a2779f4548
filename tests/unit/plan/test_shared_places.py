"""In a VNet and an API Management that others use, too: ids that nobody else has, and zones that are there already."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_policies.entities import Entity
from plan.azure.gateway_model import GatewayPlan
from plan.azure_network import PrivateLink
from tests.unit.stack_values import FILES, fault, faults, plan

HUB = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub/providers"
SERVICE = f"{HUB}/Microsoft.ApiManagement/service/contoso"
VNET = f"{HUB}/Microsoft.Network/virtualNetworks/hub"
ZONES = f"{HUB}/Microsoft.Network/privateDnsZones"
VAULT, FILE_ZONE = f"{ZONES}/{PrivateLink.VAULT}", f"{ZONES}/{PrivateLink.FILES}"
PRODUCTS = {"apps": {"display_name": "Apps", "subscriptions": ["web"]}}


def gateway(stack: str = "dev", prefix: str | None = None) -> GatewayPlan:
    own = {"id": SERVICE, "subnet": "10.9.0.0/27"} | ({} if prefix is None else {"prefix": prefix})
    return plan(stack, gateway={"existing": own, "products": PRODUCTS, "affinity": "product"}).gateway


def ids(of: GatewayPlan) -> set[str]:
    product = of.products[0]
    entities = [*of.products, *of.backends, *of.pools, *product.subscriptions]
    return {*(each.id for each in entities), of.entity_id(Entity.API), product.pool}


def test_ids_in_somebody_elses_service_carry_the_stacks_name() -> None:
    assert ids(gateway()) == {
        "dev-apps",
        "dev-node-1",
        "dev-node-2",
        "dev-nodes-for-apps",
        "dev-apps_web",
        "dev-openai",
    }
    assert not ids(gateway("dev")) & ids(gateway("test"))
    assert not ids(gateway("dev")) & ids(gateway("dev", "team"))


def test_people_go_on_with_the_names_of_the_stack_file() -> None:
    product = gateway().products[0]
    assert (product.name, product.subscriptions[0].path) == ("apps", "apps/web")
    assert product.display_name == "Apps (dev)", "Azure takes a display name once in a service"


@pytest.mark.parametrize("of", [plan(gateway={"products": PRODUCTS}).gateway, gateway(prefix="")])
def test_in_our_own_service_and_without_a_prefix_ids_are_what_they_were(of: GatewayPlan) -> None:
    product = of.products[0]
    assert (product.id, product.display_name, product.subscriptions[0].id) == ("apps", "Apps", "apps_web")
    assert of.backends[0].id == "node-1"
    assert of.entity_id(Entity.BACKEND_KEY) == "backend-key"


def test_ids_that_azure_would_find_too_long_are_refused() -> None:
    product = 50 * "p"
    found = fault(
        f"{34 * 's'}",
        name_prefix="a1",
        gateway={
            "existing": {"id": SERVICE, "subnet": "10.9.0.0/27"},
            "products": {product: {"display_name": "Long"}},
        },
    )
    assert found.key == "gateway.existing.prefix"
    assert "has 85 characters; allowed: 1-80" in found.message


@pytest.mark.parametrize("prefix", ["Team", "team-", "-team", "1team", 21 * "t", "a_b"])
def test_prefixes_that_ids_may_not_begin_with(prefix: str) -> None:
    found = fault(gateway={"existing": {"id": SERVICE, "subnet": "10.9.0.0/27", "prefix": prefix}})
    assert found.key == "gateway.existing.prefix"
    assert "at most 20 lower-case letters" in found.message


def network(**changes: Any) -> dict[str, Any]:
    return {"network": {"existing_vnet": VNET, **changes}}


def test_a_zone_that_is_there_is_used_and_not_made() -> None:
    made = plan(**network(private_dns_zones=[VAULT]), model_store=FILES).network
    assert made.existing_zones == {PrivateLink.VAULT: VAULT}
    assert made.private_zones == (PrivateLink.FILES,), "what is missing is made"


def test_a_zones_name_is_read_without_case() -> None:
    shouted = VAULT.replace("privatelink.vault", "PrivateLink.Vault")
    assert plan(**network(private_dns_zones=[shouted])).network.existing_zones == {PrivateLink.VAULT: shouted}


WRONG = [
    ({"private_dns_zones": ["vaultcore"]}, "network.private_dns_zones[0]", "allowed: /subscriptions/GUID/"),
    ({"private_dns_zones": [FILE_ZONE]}, "network.private_dns_zones[0]", "allowed: privatelink.vaultcore.azure.net"),
    ({"private_dns_zones": [VAULT], "existing_vnet": None}, "network.private_dns_zones", "needs network.existing_vnet"),
    ({"private_dns_zones": [VAULT], "private_dns": "policy"}, "network.private_dns_zones", "remove it"),
    ({"private_dns_zones": [VAULT, VAULT]}, "network.private_dns_zones", "occurs 2 times"),
]


@pytest.mark.parametrize(("changes", "key", "words"), WRONG)
def test_zones_that_cannot_be_used(changes: dict[str, Any], key: str, words: str) -> None:
    (found,) = faults(**network(**changes))
    assert found.key == key
    assert words in found.message
