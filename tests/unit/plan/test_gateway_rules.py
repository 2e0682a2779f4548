"""What a stack file may not say about its gateway, and what it may."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan.azure_facts import REFUSED_TIERS
from plan.model import display_name
from plan.rules.azure_gateway import POOL_LIMIT, SUBSCRIPTION_NAME_LENGTH
from plan.vocabulary import QuotaPeriod, Segment
from tests.unit.stack_values import FILES, MODEL, OTHER_MODEL, fault, plan

HUB = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/hub/providers"
SERVICE = f"{HUB}/Microsoft.ApiManagement/service/contoso"
VNET = f"{HUB}/Microsoft.Network/virtualNetworks/hub"
EXISTING = {"id": SERVICE, "subnet": "10.9.0.0/27"}
TWO = {MODEL: {"nodes": [1]}, OTHER_MODEL: {"nodes": [2]}}


def product(**changes: Any) -> dict[str, Any]:
    return {"products": {"apps": {"display_name": "Apps", **changes}}}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    (product(models=["gpt-4"]), "gateway.products.apps.models", "'gpt-4' is not served by this stack; allowed: hl, "),
    (product(routes=[]), "gateway.products.apps.routes", "[] must have 1 or more entries: Routes of the engine"),
    (
        product(routes=["chat", "audio"]),
        "gateway.products.apps.routes[1]",
        "'audio' is not allowed; allowed: 'chat', 'completions', 'responses', 'embeddings'",
    ),
    (product(routes=["chat", "chat"]), "gateway.products.apps.routes", "'chat' occurs 2 times; list it once"),
    (product(requests_per_minute=0), "gateway.products.apps.requests_per_minute", "must be 1 or more"),
    (product(requests_per_minute=0.5), "gateway.products.apps.requests_per_minute", "must be a whole number"),
    (product(requests_per_minute=10**18), "gateway.products.apps.requests_per_minute", "must be 1000000000 or less"),
    (product(tokens_per_minute=10**18), "gateway.products.apps.tokens_per_minute", "must be 1000000000 or less"),
    (
        product(token_quota={"tokens": 10**18, "period": "daily"}),
        "gateway.products.apps.token_quota.tokens",
        "must be 1000000000000000 or less",
    ),
    (product(display_name="  "), "gateway.products.apps.display_name", "must be printable text on one line"),
    (product(display_name="a\nb"), "gateway.products.apps.display_name", "must be printable text on one line"),
    (
        product(subscriptions=[{"name": "a1", "owner": "Ada\x07"}]),
        "gateway.products.apps.subscriptions[0].owner",
        "must be printable text on one line",
    ),
    ({"publisher_name": "\u202eevil"}, "gateway.publisher_name", "must be printable text on one line"),
    ({"pool": {True: {}}}, "gateway.pool[1]", "must be a node's number, not a switch"),
    (product(tokens_per_minute=0), "gateway.products.apps.tokens_per_minute", "must be 1 or more"),
    (
        product(token_quota={"tokens": 0, "period": "daily"}),
        "gateway.products.apps.token_quota.tokens",
        "must be 1 or more",
    ),
    (
        product(token_quota={"tokens": 10**6, "period": "fortnightly"}),
        "gateway.products.apps.token_quota.period",
        "'fortnightly' is not allowed; allowed: 'hourly', 'daily', 'weekly', 'monthly', 'yearly'",
    ),
    (
        product(tokens_per_minute=1000, token_quota={"tokens": 999, "period": "daily"}),
        "gateway.products.apps.token_quota.tokens",
        "999 is less than tokens_per_minute 1000, which then never counts; allowed: 1000 or more",
    ),
    (product(subscriptions=["a1", "a1"]), "gateway.products.apps.subscriptions", "'a1' occurs 2 times"),
    (
        product(subscriptions=["a1", {"name": "a1", "owner": "Ada"}]),
        "gateway.products.apps.subscriptions",
        "'a1' occurs 2 times; list it once",
    ),
    (
        product(subscriptions=[{"name": "a1", "ower": "Ada"}]),
        "gateway.products.apps.subscriptions[0].ower",
        "is not a known key; did you mean owner? allowed: name, owner",
    ),
    (
        product(subscriptions=[{"name": "a" * 50, "owner": "B" * 60}]),
        "gateway.products.apps.subscriptions",
        "make a name of 113 characters; allowed: 100",
    ),
    (
        product(visible_to_guests=True, published=False),
        "gateway.products.apps.visible_to_guests",
        "shows nothing while `published: false`",
    ),
    ({"drain": [3]}, "gateway.drain", "3 is not a node; allowed: 1-2"),
    ({"drain": [1, 1]}, "gateway.drain", "'1' occurs 2 times"),
    ({"drain": [1, 2]}, "gateway.drain", "are all nodes that serve hl; leave at least one in"),
    ({"pool": {"0": {}}}, "gateway.pool", "0 is not a node; allowed: 1-2"),
    ({"pool": {"1": {"weight": 0}}}, "gateway.pool.1.weight", "must be 1 or more"),
    ({"pool": {"1": {"priority": 101}}}, "gateway.pool.1.priority", "must be 100 or less"),
    (
        {"affinity": "product", "pool": {"1": {"weight": 2}}},
        "gateway.pool",
        "can't stand beside `affinity: product`, which sets priorities itself",
    ),
    ({"affinity": "cookie"}, "gateway.affinity", "allowed: 'none', 'product'"),
    ({"api_path": "llm"}, "gateway.api_path", "allowed: v1, or up to three parts"),
    ({"existing": {**EXISTING, "id": "contoso"}}, "gateway.existing.id", "allowed: /subscriptions/GUID/"),
    (
        {"existing": EXISTING, "inbound": "private-endpoint"},
        "gateway.inbound",
        "is the business of the owner of gateway.existing; remove it",
    ),
    ({"private_address": "10.0.1.4"}, "gateway.private_address", "is for `gateway.inbound: internal` only; remove it"),
    (
        {"tier": "PremiumV2", "inbound": "internal", "private_address": "10.0.2.4"},
        "gateway.private_address",
        "10.0.2.4 is not in network.gateway_subnet 10.0.1.0/24",
    ),
    (
        {"tier": "PremiumV2", "inbound": "internal", "private_address": "10.0.1.3"},
        "gateway.private_address",
        "10.0.1.3 is an address that Azure keeps for itself in 10.0.1.0/24",
    ),
    (
        {"tier": "PremiumV2", "inbound": "internal", "private_address": "10.0.1.255"},
        "gateway.private_address",
        "10.0.1.255 is an address that Azure keeps for itself in 10.0.1.0/24",
    ),
    ({"private_address": "10.0.1"}, "gateway.private_address", "IPv4 address"),
    (
        {"inbound": "private-endpoint", "public_access": "disabled", "bearer_api": True},
        "gateway.bearer_api",
        "needs a gateway that reaches itself by its name, which is unproven with `public_access: disabled`; use the",
    ),
    (
        {"tier": "PremiumV2", "inbound": "internal", "bearer_api": True},
        "gateway.bearer_api",
        "unproven with `inbound: internal`",
    ),
    (
        {"existing": {**EXISTING, "subnet": "10.0.0.0/27"}},
        "gateway.existing.subnet",
        "10.0.0.0/27 overlaps network.nodes_subnet 10.0.0.0/24; choose other ranges",
    ),
]


@pytest.mark.parametrize(("gateway", "key", "sentence"), WRONG, ids=[key for _, key, _ in WRONG])
def test_what_is_wrong_is_one_sentence(gateway: dict[str, Any], key: str, sentence: str) -> None:
    found = fault(gateway=gateway)
    assert found.key == key
    assert sentence in found.message


@pytest.mark.parametrize("tier", sorted(REFUSED_TIERS))
def test_tiers_that_cannot_work_are_refused_with_the_reason(tier: str) -> None:
    found = fault(gateway={"tier": tier})
    assert found.message.startswith(f"'{tier}' can't work here: {REFUSED_TIERS[tier]}; allowed: Developer, ")


@pytest.mark.parametrize(
    ("routes", "key", "sentence"),
    [
        ([], f"serving.models.{MODEL}.routes", "[] must have 1 or more entries"),
        (["responses", "responses"], f"serving.models.{MODEL}.routes", "'responses' occurs 2 times; list it once"),
        (
            ["completions", "chat"],
            "gateway.products.apps.routes",
            f"responses leaves none of its models usable ({MODEL}); allowed: one or more of chat, completions",
        ),
    ],
)
def test_a_model_offers_routes_that_its_products_can_use(routes: list[str], key: str, sentence: str) -> None:
    found = fault(serving={"models": {MODEL: {"routes": routes}}}, gateway=product(routes=["responses"]))
    assert found.key == key
    assert sentence in found.message


def test_one_model_that_a_products_routes_reach_is_enough() -> None:
    models = {MODEL: {"routes": ["chat"]}, "hl": {}}
    built = plan(serving={"models": models}, gateway=product(routes=["responses"]))
    assert [each.routes for each in built.gateway.products] == [("responses",)]


def test_models_on_different_nodes_need_products_of_their_own() -> None:
    found = fault(serving={"models": TWO})
    assert found.key == "gateway.products.developers.models"
    assert found.message.endswith(f"allowed: [{OTHER_MODEL}] or [{MODEL}]")


def test_an_alias_on_some_of_the_nodes_is_apart_too() -> None:
    """Node 2 does not know it, so requests for it must not go there."""
    found = fault(serving={"models": {MODEL: {}, "hl": {"nodes": [1]}}})
    assert "hl, llama-3.2-3b are not on the same nodes" in found.message


def test_each_product_gets_the_nodes_that_know_all_of_its_models() -> None:
    products = {
        name: {"display_name": name, "models": [model]} for name, model in (("one", MODEL), ("two", OTHER_MODEL))
    }
    built = plan(serving={"models": TWO}, gateway={"products": products}).gateway
    members = {pool.id: [member.id for member in pool.members] for pool in built.pools}
    assert members == {"nodes-1": ["node-1"], "nodes-2": ["node-2"]}
    assert {each.id: each.pool for each in built.products} == {"one": "nodes-1", "two": "nodes-2"}


@given(drain=st.sets(st.integers(1, 6), max_size=5), count=st.just(6))
def test_a_drained_node_is_out_of_every_pool_and_still_known(drain: set[int], count: int) -> None:
    built = plan(
        nodes={"count": count, "quota_vcpus": 40 * count, "zone": "1"},
        model_store={"sku": "PremiumV2_LRS"},
        gateway={"drain": sorted(drain)},
    ).gateway
    assert {backend.id for backend in built.backends} == {f"node-{number}" for number in range(1, count + 1)}
    (pool,) = built.pools
    assert {member.id for member in pool.members} == {f"node-{n}" for n in range(1, count + 1) if n not in drain}
    assert pool.id == "nodes", "the pool keeps its name, so products keep their policies"


def test_with_affinity_each_product_has_a_home_and_others_take_over() -> None:
    products = {name: {"display_name": name} for name in ("a1", "b1", "c1")}
    built = plan(gateway={"affinity": "product", "products": products}).gateway
    homes = {pool.id: {member.id: member.priority for member in pool.members} for pool in built.pools}
    assert homes == {
        "nodes-for-a1": {"node-1": 1, "node-2": 2},
        "nodes-for-b1": {"node-1": 2, "node-2": 1},
        "nodes-for-c1": {"node-1": 1, "node-2": 2},
    }
    assert {each.id: each.pool for each in built.products} == {name: f"nodes-for-{name}" for name in products}
    drained = plan(gateway={"affinity": "product", "products": products, "drain": [1]}).gateway
    assert [[member.priority for member in pool.members] for pool in drained.pools] == [[1], [1], [1]]


def test_more_nodes_than_a_pool_holds_are_refused() -> None:
    count = POOL_LIMIT + 1
    found = fault(nodes={"count": count, "quota_vcpus": 40 * count}, model_store=FILES)
    assert found.key == "nodes.count"
    assert found.message == (
        f"{count} nodes would serve hl behind one pool of API Management; allowed: {POOL_LIMIT}, or a second stack"
    )


def test_a_distributed_model_has_one_node_behind_the_gateway() -> None:
    built = plan(serving={"topology": "distributed"}).gateway
    assert [backend.id for backend in built.backends] == ["node-1"]
    found = fault(serving={"topology": "distributed"}, gateway={"drain": [1]})
    assert "leave at least one in" in found.message


# --- What is somebody else's


def test_an_existing_gateway_calls_from_its_own_range() -> None:
    built = plan(gateway={"existing": EXISTING, "api_path": "llm/v1"}, network={"gateway_subnet": "192.168.0.0/29"})
    assert built.gateway.existing is not None
    assert (built.gateway.existing.resource_group, built.gateway.existing.name) == ("hub", "contoso")
    assert str(built.addresses.subnets[Segment.GATEWAY]) == "10.9.0.0/27"
    assert Segment.GATEWAY not in built.addresses.own_subnets
    assert Segment.GATEWAY not in built.security_rules
    assert built.gateway.api_path == "llm/v1"
    assert built.gateway.name == "contoso"
    assert not [flow.name for flow in built.flows if flow.listener is Segment.GATEWAY], "its ports are its keeper's"


def test_an_existing_vnet_is_named_by_its_id() -> None:
    assert plan(network={"existing_vnet": VNET}).network.existing_vnet == VNET
    assert "allowed: /subscriptions/GUID/" in fault(network={"existing_vnet": "hub-vnet"}).message


# --- Words


@given(st.text(min_size=1, max_size=50), st.none() | st.text(min_size=1, max_size=40))
def test_a_display_name_begins_with_the_subscription_and_fits(name: str, owner: str | None) -> None:
    shown = display_name(name, owner)
    assert shown.startswith(name)
    assert len(shown) <= SUBSCRIPTION_NAME_LENGTH
    assert owner is None or owner in shown


def test_every_period_is_a_word_of_the_policy() -> None:
    """`llm-token-limit` has these and no others; the policy writes them with a capital."""
    assert [period.value.capitalize() for period in QuotaPeriod] == ["Hourly", "Daily", "Weekly", "Monthly", "Yearly"]
