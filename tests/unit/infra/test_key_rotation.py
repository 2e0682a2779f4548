from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.errors import InputError
from infra.operations.key_rotation import Step, other, plan_step
from plan.vocabulary import KeyName
from tests.unit.stack_values import FILE, plan

GATEWAY = plan(
    gateway={
        "products": {"apps": {"display_name": "Apps", "subscriptions": ["web", {"name": "mobile", "owner": "Ada"}]}}
    }
).gateway


@pytest.mark.parametrize("in_use", KeyName)
@pytest.mark.parametrize("step", Step)
def test_a_step_never_renews_the_key_that_clients_use(step: Step, in_use: KeyName) -> None:
    rotation = plan_step(GATEWAY, FILE, "apps/web", step, in_use)
    assert rotation.sid == "apps_web"
    assert rotation.renews is not rotation.clients_use
    assert str(rotation.renews) in rotation.question.split("key")[0]


@given(in_use=st.sampled_from(KeyName), rounds=st.integers(1, 6))
def test_clients_that_follow_the_steps_always_hold_a_key_that_works(in_use: KeyName, rounds: int) -> None:
    """However often it is done: each step renews one key, and the clients' own is valid before and after it."""
    valid = {KeyName.PRIMARY: 0, KeyName.SECONDARY: 0}
    held, text = in_use, 0
    for _ in range(rounds):
        for step in Step:
            rotation = plan_step(GATEWAY, FILE, "apps/web", step, in_use)
            assert rotation.clients_use is held
            valid[rotation.renews] += 1
            assert valid[held] == text, "the key in use was renewed"
            if step is Step.START:
                held, text = rotation.renews, valid[rotation.renews]
        in_use = held


def test_the_next_steps_name_the_command_that_comes_next() -> None:
    start = plan_step(GATEWAY, FILE, "apps/web", Step.START, KeyName.PRIMARY)
    assert any("infra keys rotate -s prod apps/web --finish" in text for text in start.next_steps("prod"))
    other_way = plan_step(GATEWAY, FILE, "apps/web", Step.START, KeyName.SECONDARY)
    assert any("--finish --in-use secondary" in text for text in other_way.next_steps("prod"))
    finish = plan_step(GATEWAY, FILE, "apps/web", Step.FINISH, KeyName.PRIMARY)
    assert any("--in-use secondary" in text for text in finish.next_steps("prod")), "clients now hold the secondary one"


def test_an_unknown_subscription_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InputError) as caught:
        plan_step(GATEWAY, FILE, "apps/desktop", Step.START, KeyName.PRIMARY)
    (fault,) = caught.value.faults
    assert fault.message == "there is no subscription 'apps/desktop'; allowed: apps/mobile, apps/web"


def test_there_is_one_other_key() -> None:
    assert {other(which) for which in KeyName} == set(KeyName)


def test_in_a_shared_service_it_is_asked_for_as_in_the_stack_file() -> None:
    service = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/h/providers/Microsoft.ApiManagement"
    existing = {"id": f"{service}/service/contoso", "subnet": "10.9.0.0/27"}
    products = {"apps": {"display_name": "Apps", "subscriptions": ["web"]}}
    gateway = plan(gateway={"existing": existing, "products": products}).gateway
    rotation = plan_step(gateway, FILE, "apps/web", Step.START, KeyName.PRIMARY)
    assert (rotation.subscription, rotation.sid) == ("apps/web", "dev-apps_web")
