"""Every tier and way in, and somebody else's landing zone: whole lives under the real engine, on a simulated Azure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from infra.rehearsal import existing
from infra.rehearsal.record import Change
from plan import stack_file
from tests.engine.life import Life

ROOT = stack_file.ROOT / "tests"
STACKS = stack_file.names(ROOT)
BACKEND, SERVICE = "apimanagement:Backend", "apimanagement:ApiManagementService"


@pytest.fixture(scope="module", params=STACKS)
def life(request: pytest.FixtureRequest, open_life: Callable[..., Life]) -> Iterator[Life]:
    """One life for each stack, lived by all tests here in turn."""
    life = open_life(request.param, ROOT)
    life.up()
    yield life


def test_nothing_is_left_to_do_after_up(life: Life) -> None:
    assert life.preview().touched() == {}


def test_a_drained_node_changes_the_pool_and_whom_the_alarm_compares(life: Life) -> None:
    """With one node left there is nobody to compare it with, so that alarm goes, and comes again with its peer."""

    def members() -> list[str]:
        (pool,) = [backend for backend in life.azure.of_type(BACKEND) if backend.properties["type"] == "Pool"]
        return [member["id"].rsplit("/", 1)[-1] for member in pool.properties["pool"]["services"]]

    nodes = [backend.id for backend in life.plan().gateway.backends]
    own_logs = life.plan().gateway.existing is None  # another's gateway logs elsewhere
    for drain, left, alarm in (([2], nodes[:1], Change.DELETE), ([], nodes, Change.CREATE)):
        life.edit(lambda settings, drain=drain: settings["gateway"].update(drain=drain))
        compared = {"watch-node-out-of-pool": alarm} if own_logs else {}
        assert life.up().touched() == {"gateway-backends-pool": Change.UPDATE, **compared}
        assert members() == left


def test_the_gateway_is_what_the_stack_says(life: Life) -> None:
    plan = life.plan()
    (service,) = life.azure.of_type(SERVICE)
    assert service.properties["sku"] == {"name": plan.gateway.facts.tier.value, "capacity": plan.gateway.units}
    if plan.gateway.existing is not None:
        assert service.properties["publisherName"] == "Somebody else"
        return
    assert service.properties["virtualNetworkType"] == plan.gateway.virtual_network_type
    internal = plan.gateway.virtual_network_type == "Internal"
    assert bool(service.properties.get("privateIPAddresses")) == (internal and plan.gateway.facts.classic)


def test_destroy_leaves_what_was_there_before(life: Life) -> None:
    life.destroy()
    plan, left = life.plan(), life.azure.resources.values()
    assert [resource.id for resource in left if existing.is_ours(plan, resource.id)] == []
    before = {resource.id for resource in existing.resources(plan)}
    assert {resource.id for resource in left} == before


def test_a_landing_zone_without_its_gateway_fails_in_the_preview(open_life: Callable[..., Life]) -> None:
    life = open_life("landing-zone", ROOT)
    life.edit(lambda settings: settings["gateway"]["existing"].update(id=settings["gateway"]["existing"]["id"] + "x"))
    text, _ = life.fail(life.sandbox.stack.preview)
    assert "contoso-apisx" in text
