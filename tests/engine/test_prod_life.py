"""What differs in prod: protection, a private way in, two phases for the public endpoint."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.rehearsal.record import Change
from infra.rehearsal.steps import steps_of
from tests.engine.life import Life

GATEWAY = "azure-native:apimanagement:ApiManagementService"


@pytest.fixture(scope="module")
def prod(open_life: Callable[[str], Life]) -> Life:
    life = open_life("prod")
    life.up()
    return life


def test_public_access_can_not_be_disabled_at_creation(open_life: Callable[[str], Life]) -> None:
    life = open_life("prod")
    life.edit(lambda settings: settings["gateway"].update(public_access="disabled"))
    text, _ = life.fail(life.sandbox.stack.up)
    assert "publicNetworkAccess" in text


def test_the_public_endpoint_closes_on_the_second_up(prod: Life) -> None:
    prod.edit(lambda settings: settings["gateway"].update(public_access="disabled"))
    record = prod.up()
    assert record.touched_types() == {GATEWAY: {Change.UPDATE}}
    (service,) = prod.azure.of_type("apimanagement:ApiManagementService")
    assert service.properties["publicNetworkAccess"] == "Disabled"


def test_every_subscription_has_a_key_of_its_own(prod: Life) -> None:
    keys = prod.sandbox.stack.outputs()["product_keys"].value
    assert set(keys) == {"batch/nightly-summaries", "chat/assistant-mobile", "chat/assistant-web"}
    assert len(set(keys.values())) == len(keys)


def test_operators_get_a_tunnel_command_for_each_node(prod: Life) -> None:
    commands = prod.sandbox.stack.outputs()["tunnel_commands"].value
    assert set(commands) == {"huddleai-h100-node-1", "huddleai-h100-node-2"}
    assert all(text.startswith("az network bastion ssh --name huddleai-prod-bastion") for text in commands.values())


def test_a_new_product_leaves_the_others_alone(prod: Life) -> None:
    def add(settings: dict[str, dict[str, dict[str, object]]]) -> None:
        settings["gateway"]["products"]["aaa-first"] = {"display_name": "First by name", "subscriptions": ["one"]}

    prod.edit(add)
    touched = prod.up().touched()
    changed = {name: change for name, change in touched.items() if "apply" not in name}
    assert set(changed.values()) == {Change.CREATE}, changed
    assert all("aaa-first" in name for name in changed)


def test_destroy_is_refused_until_somebody_unprotects(prod: Life) -> None:
    refused, unprotect, destroy = steps_of(prod.plan())[-3:]
    assert [step.name for step in (refused, unprotect, destroy)] == ["guard", "unprotect", "destroy"]
    before = len(prod.azure.resources)
    text, _ = prod.fail(lambda on_event: refused.run(prod.sandbox, on_event))
    assert "protect" in text
    assert len(prod.azure.resources) == before
    unprotect.run(prod.sandbox, lambda _: None)
    destroy.run(prod.sandbox, lambda _: None)
    assert prod.azure.resources == {}
