"""What a stack writes into an API Management of somebody else: everything under ids of its own."""

from __future__ import annotations

import re

import pulumi
import pytest
from pulumi_azure_native import apimanagement

from components.gateway.chain import Chain
from tests.unit.builders import plan
from tests.unit.components.gateway_program import TWO_PRODUCTS, build, standard, written
from tests.unit.components.test_gateway_service import CALLS, EXISTING
from tests.unit.recording import Recording, run_program

KEYS = ("apiId", "backendId", "loggerId", "namedValueId", "productId", "sid")
NAMED = re.compile(r"{{([^}]*)}}|backend-id=\"([^\"]*)\"")


def shared() -> Recording:
    found = {"id": EXISTING["id"], "gatewayUrl": "https://c.azure-api.net", "developerPortalUrl": "https://c"}
    calls = {**CALLS, "apimanagement:getApiManagementService": lambda _: found}
    both = {"azure_openai_api": True, "bearer_api": True}
    return build(plan(gateway={"existing": EXISTING, "products": TWO_PRODUCTS, **both}), calls=calls, subnet_id=None)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return shared()


def test_every_id_carries_the_stacks_name(recording: Recording) -> None:
    found = {(each.name, key): each[key] for each in written(recording) for key in KEYS if each[key]}
    kinds = {key for _, key in found}
    assert kinds == set(KEYS)
    for (name, key), value in found.items():
        own = str(value).rpartition("/")[2] if key == "loggerId" else str(value)
        assert own.startswith("dev-"), f"{name}: {key} is {value!r}"


def test_policies_and_the_logger_name_only_what_is_ours(recording: Recording) -> None:
    texts = [str(each["value"] or "") for each in written(recording)]
    texts.append(str(recording.one("apimanagement:Logger")["credentials"]))
    named = {name for text in texts for pair in NAMED.findall(text) for name in pair if name}
    assert named == {"dev-backend-key", "dev-insights-connection-string", "dev-nodes"}


def test_display_names_that_azure_takes_once_are_ours_too(recording: Recording) -> None:
    shown = {each["displayName"] for each in recording.of("apimanagement:Product")}
    assert shown == {"Small (dev)", "Large (dev)"}
    assert {each["displayName"] for each in recording.of("apimanagement:NamedValue")} == {
        "dev-backend-key",
        "dev-insights-connection-string",
    }


def test_pulumi_knows_them_by_the_same_names_wherever_they_are(recording: Recording) -> None:
    """So that a new prefix replaces an entity, and is no stranger beside it."""
    ours = {each.name for each in written(standard())}
    assert {each.name for each in written(recording) if "-doors" not in each.name} == ours - {
        "gateway-observability-service"
    }


@pytest.mark.parametrize(("of_others", "before_the_last"), [(True, {"first", "second", "third"}), (False, {"third"})])
def test_in_a_service_of_others_everybody_waits_for_all_who_came_before(
    of_others: bool, before_the_last: set[str]
) -> None:
    """What is replaced early leaves a gap, across which the engine would delete at the same time (2 runs of 6)."""

    def program() -> None:
        chain, parent = Chain([], shared=of_others), pulumi.ComponentResource("h100:test:Line", "line")
        for name in ("first", "second", "third", "fourth"):
            where = {"resource_group_name": "g", "service_name": "gw", "named_value_id": name, "display_name": name}
            chain.add(apimanagement.NamedValue(name, **where, value="x", opts=chain.link(parent)))

    recording = run_program(program, "dev", preview=True)
    last = recording.one("apimanagement:NamedValue", "fourth")
    waited = {urn.rpartition("::")[2] for urn in last.dependencies} - {"line"}
    assert waited == before_the_last
