from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from components.gateway.products import Products, ProductsArgs
from plan.azure.gateway_model import GatewayProduct
from plan.model import SubscriptionPlan, subscription_id
from tests.unit.builders import plan, scope
from tests.unit.components.gateway_program import standard, written
from tests.unit.recording import Recording, run_program

# --- One write at a time


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_no_two_writes_are_in_flight(preview: bool) -> None:
    recording = standard(preview)
    entities = written(recording)
    assert len(entities) == 21
    for one, other in combinations(entities, 2):
        assert recording.waits_for(one, other) or recording.waits_for(other, one), f"{one.name} and {other.name}"


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9]", fullmatch=True)


def product(name: str, subscriptions: set[str]) -> GatewayProduct:
    return GatewayProduct(
        name=name,
        id=name,
        display_name=name,
        description="",
        models=("m",),
        system_prompt=None,
        requests_per_minute=1,
        tokens_per_minute=1,
        approval_required=False,
        published=False,
        subscriptions=tuple(SubscriptionPlan(name, each) for each in sorted(subscriptions)),
    )


def build_products(products: Sequence[GatewayProduct]) -> Recording:
    def program() -> None:
        names = {"service_name": "service", "api_id": "api"}
        Products("products", ProductsArgs(scope(plan()), **names, products=tuple(products), after=[], shared=False))

    return run_program(program)


# A program runs for each example: a failing one is told as it is, without a search for a smaller one.
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(products=st.dictionaries(NAMES, st.sets(NAMES, max_size=1), min_size=2, max_size=3), data=st.data())
def test_one_more_product_leaves_the_others_as_they_were(products: dict[str, set[str]], data: st.DataObject) -> None:
    plans = {name: product(name, subscriptions) for name, subscriptions in products.items()}
    newcomer = data.draw(st.sampled_from(sorted(plans)))
    before = build_products([made for name, made in plans.items() if name != newcomer])
    after = build_products(data.draw(st.permutations(list(plans.values()))))
    for resource in before.resources:
        same = after.by_urn(resource.urn)
        assert same is not None, f"{resource.name} would be destroyed"
        assert same.inputs == resource.inputs, f"{resource.name} would change"
    made = [resource["productId"] for resource in after.of("apimanagement:Product")]
    assert made == sorted(plans), "the order must be the ids', whatever the order in the stack file"
    for first, second in pairwise(after.of("apimanagement:Product")):
        assert after.waits_for(second, first)


@given(NAMES, NAMES, NAMES)
def test_two_subscriptions_never_share_an_id(first: str, second: str, third: str) -> None:
    assert subscription_id(f"{first}-{second}", third) != subscription_id(first, f"{second}-{third}")
