from __future__ import annotations

from typing import Any

from infra.operations.arm_gateway import LiveProduct, LiveSubscription
from infra.operations.inventory import Inventory, take
from tests.unit.stack_values import plan

OURS = LiveSubscription("apps_web", "web", "apps", "active", None)
SIGNED_UP = LiveSubscription("5f1e", "Grace's app", "apps", "active", "grace")
ALL_APIS = LiveSubscription("ops", "Ops", None, "active", None)
MASTER = LiveSubscription("master", "Built-in all-access subscription", None, "active", None)
PRODUCTS = (LiveProduct("apps", "Apps"), LiveProduct("Partner", "Partner"))


def found(deployed: tuple[str, ...] = ("apps",), products: dict[str, Any] | None = None, *live: Any) -> Inventory:
    products = products or {"apps": {"display_name": "Apps", "subscriptions": ["web"]}}
    return take(plan(gateway={"products": products}).gateway, deployed, PRODUCTS, live or (OURS, SIGNED_UP))


def test_what_others_made_is_listed_by_whom_it_belongs_to() -> None:
    seen = found(("apps",), None, OURS, SIGNED_UP, ALL_APIS, MASTER)
    assert [product.id for product in seen.foreign_products] == ["Partner"]
    assert seen.foreign_subscriptions == (SIGNED_UP,)
    assert seen.bypasses == (ALL_APIS,), "the built-in one comes with every service"
    assert seen.refusals == ()


def test_a_product_with_others_subscriptions_may_not_leave_the_stack_file() -> None:
    seen = found(("apps", "new"), {"new": {"display_name": "New"}})
    (refusal,) = seen.refusals
    assert refusal.startswith("product 'apps' is no longer in the stack file, and 1 subscriptions")
    assert "Grace's app of grace" in refusal
    assert "published: false" in refusal


def test_a_product_with_only_our_subscriptions_may_leave() -> None:
    assert found(("apps",), {"new": {"display_name": "New"}}, OURS).refusals == ()


def test_subscriptions_to_products_of_others_are_nobodys_business_here() -> None:
    theirs = LiveSubscription("x", "Theirs", "partner", "active", None)
    seen = found(("apps",), None, theirs)
    assert seen.foreign_subscriptions == ()
    assert seen.refusals == ()


def test_ids_are_compared_without_case_as_azure_does() -> None:
    shouted = LiveSubscription("APPS_WEB", "web", "Apps", "active", None)
    seen = take(
        plan(gateway={"products": {"apps": {"display_name": "A", "subscriptions": ["web"]}}}).gateway,
        ("APPS",),
        (LiveProduct("Apps", "Apps"),),
        (shouted,),
    )
    assert seen == Inventory((), (), (), {})


def test_in_a_shared_service_only_ids_of_the_stack_are_ours() -> None:
    service = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/h/providers/Microsoft.ApiManagement"
    existing = {"id": f"{service}/service/contoso", "subnet": "10.9.0.0/27"}
    products = {"apps": {"display_name": "Apps", "subscriptions": ["web"]}}
    gateway = plan(gateway={"existing": existing, "products": products}).gateway
    ours = LiveSubscription("dev-apps_web", "web", "dev-apps", "active", None)
    seen = take(gateway, ("dev-apps",), (LiveProduct("dev-apps", "Apps (dev)"), *PRODUCTS), (ours, OURS))
    assert [product.id for product in seen.foreign_products] == ["Partner", "apps"]
    assert seen.foreign_subscriptions == ()
    assert seen.refusals == ()
