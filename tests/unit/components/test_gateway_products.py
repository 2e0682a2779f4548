from __future__ import annotations

from typing import Any

import pytest

from simulator.plugin.values import UNKNOWN, Secret
from tests.unit.builders import plan
from tests.unit.components.gateway_program import SUBSCRIPTION, TWO_PRODUCTS, build, standard
from tests.unit.recording import CANARY, assert_no_canary_outside_secrets

# --- Products


def test_products_are_what_the_stack_says(preview: bool) -> None:
    recording = standard(preview)
    products = {product["productId"]: product for product in recording.of("apimanagement:Product")}
    assert set(products) == {"large", "small"}
    large, small = products["large"], products["small"]
    assert (large["displayName"], large["description"], large["approvalRequired"]) == ("Large", "Much.", True)
    assert (large["state"], small["state"]) == ("published", "notPublished")
    assert large["subscriptionRequired"] is True
    assert small["subscriptionRequired"] is True
    assert (large["terms"], small["terms"]) == ("Be kind.", None)
    assert {link["productId"]: link["apiId"] for link in recording.of("apimanagement:ProductApi")} == {
        "large": "openai",
        "small": "openai",
    }


def test_no_key_works_before_its_products_limits_do() -> None:
    recording = standard()
    limits = {policy["productId"]: policy for policy in recording.of("apimanagement:ProductPolicy")}
    for opened in (*recording.of("apimanagement:ProductApi"), *recording.of(SUBSCRIPTION)):
        product = opened["productId"] or opened["sid"].partition("_")[0]
        assert recording.waits_for(opened, limits[product])


def test_subscriptions_are_active_and_for_one_product() -> None:
    recording = standard()
    ids = {product["productId"]: product.id for product in recording.of("apimanagement:Product")}
    names = {subscription["sid"]: subscription["displayName"] for subscription in recording.of(SUBSCRIPTION)}
    assert names == {"large_jobs": "jobs (Ada Lovelace)", "small_app": "app", "small_web": "web"}
    for subscription in recording.of(SUBSCRIPTION):
        assert subscription["state"] == "active"
        assert subscription["scope"] == ids[subscription["sid"].partition("_")[0]]
        assert subscription["allowTracing"] is False
        assert subscription["primaryKey"] is None


def test_published_products_are_shown_to_those_who_may_see_them() -> None:
    """Nobody sees an unpublished product; guests only see what is meant for them."""

    def shown(**changes: Any) -> list[tuple[str, str]]:
        products = {"large": {**TWO_PRODUCTS["large"], **changes}}
        recording = build(plan(gateway={"products": products}))
        return [(group["productId"], group["groupId"]) for group in recording.of("apimanagement:ProductGroup")]

    assert shown() == [("large", "developers"), ("large", "guests")]
    assert shown(visible_to_guests=False) == [("large", "developers")]
    assert shown(visible_to_guests=False, published=False) == []


@pytest.mark.parametrize(("output", "which"), [("keys", "primary"), ("secondary", "secondary")])
def test_both_keys_are_secret_outputs_by_product_and_subscription(output: str, which: str) -> None:
    recording = standard()
    names = ("large/jobs", "small/app", "small/web")
    keys = {name: f"{CANARY}-{name.replace('/', '_')}-{which}" for name in names}
    assert recording.exports[output] in (Secret(keys), {name: Secret(key) for name, key in keys.items()})
    assert_no_canary_outside_secrets(recording)


def test_a_preview_asks_azure_for_no_key() -> None:
    recording = standard(preview=True)
    assert recording.calls == []
    assert recording.exports["url"] is UNKNOWN
    assert len(standard().calls) == 3
