"""The plan: one description that everything else reads. Complete, deterministic, and indifferent to order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.program import load_plan, plan_of
from plan import stack_file
from plan.vocabulary import Environment, Role, Segment
from tests.unit.stack_values import FILES, MODEL, OTHER_MODEL, legal_changes, plan


@pytest.mark.parametrize("stack", stack_file.names())
def test_every_stack_has_a_plan_and_it_is_always_the_same(stack: str) -> None:
    assert load_plan(stack) == load_plan(stack)


def _shuffled(value: Any, order: random.Random) -> Any:
    """The same values with every mapping's keys in another order."""
    if isinstance(value, Mapping):
        keys = list(value)
        order.shuffle(keys)
        return {key: _shuffled(value[key], order) for key in keys}
    return value


@given(seed=st.integers(), stack=st.sampled_from(stack_file.names()))
def test_the_order_of_keys_changes_nothing(seed: int, stack: str) -> None:
    config = _shuffled(stack_file.read(stack), random.Random(seed))
    assert plan_of(stack_file.from_values(config, stack), stack) == load_plan(stack)


def test_the_order_of_lists_changes_nothing_where_it_means_nothing() -> None:
    def product(models: list[str], apps: list[str]) -> dict[str, Any]:
        return {"products": {"developers": {"display_name": "D", "models": models, "subscriptions": apps}}}

    assert plan(gateway=product(["hl", MODEL], ["a1", "b1"])) == plan(gateway=product([MODEL, "hl"], ["b1", "a1"]))
    models = {MODEL: {"nodes": [1, 2]}}
    assert plan(serving={"models": models}) == plan(serving={"models": {MODEL: {"nodes": [2, 1]}}})


@given(changes=legal_changes())
def test_nodes_are_counted_from_one_and_the_first_is_the_head(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    assert [node.number for node in built.nodes] == list(range(1, changes["nodes"]["count"] + 1))
    assert [node.role for node in built.nodes] == [Role.HEAD, *[Role.WORKER] * (len(built.nodes) - 1)]
    assert built.head == built.nodes[0]
    assert built.head.address == built.head.address
    assert [node.address for node in built.nodes] == list(built.addresses.node_addresses)
    assert [node.name for node in built.nodes] == [f"huddleai-h100-node-{node.number}" for node in built.nodes]


@given(changes=legal_changes())
def test_backends_are_the_nodes_that_answer(changes: dict[str, Any]) -> None:
    built = plan(**changes)
    port = built.serving.wrapper_port
    answering = built.nodes[:1] if changes["serving"]["topology"] == "distributed" else built.nodes
    assert [backend.url for backend in built.gateway.backends] == [
        f"http://{node.address}:{port}/v1" for node in answering
    ]
    assert len({backend.id for backend in built.gateway.backends}) == len(built.gateway.backends)


@given(changes=legal_changes())
def test_the_gateway_gets_the_delegation_of_its_tier_and_way_in(changes: dict[str, Any]) -> None:
    gateway = plan(**changes).gateway
    assert gateway.delegation == gateway.facts.delegation[gateway.inbound]
    assert gateway.virtual_network_type == ("Internal" if changes["gateway"]["inbound"] == "internal" else "External")


def test_the_seeds_values() -> None:
    built = plan()
    assert [(node.name, str(node.address)) for node in built.nodes] == [
        ("huddleai-h100-node-1", "10.0.0.4"),
        ("huddleai-h100-node-2", "10.0.0.5"),
    ]
    assert (built.paths.models, built.store.lun, built.store.size_gib) == ("/mnt/models", 0, 1024)
    assert built.store.max_shares == 5
    assert built.compute.size.name == "Standard_NC40ads_H100_v5"
    assert [model.name for model in built.serving.models] == ["hl", MODEL]


def products(*models: list[str]) -> dict[str, Any]:
    """A product for each list of models."""
    return {"products": {f"p{number}": {"display_name": f"P{number}", "models": m} for number, m in enumerate(models)}}


def test_each_model_knows_its_base_and_its_nodes() -> None:
    models = {MODEL: {"nodes": [1], "system_prompt": "Be brief."}, OTHER_MODEL: {"nodes": [2]}}
    built = plan(serving={"models": models}, gateway=products([MODEL], [OTHER_MODEL]))
    assert {(m.name, m.base, m.nodes, m.system_prompt) for m in built.serving.models} == {
        (MODEL, MODEL, (1,), "Be brief."),
        (OTHER_MODEL, OTHER_MODEL, (2,), None),
    }
    assert [node.model for node in built.nodes] == [MODEL, OTHER_MODEL]


def test_an_alias_runs_on_the_engine_of_its_base() -> None:
    built = plan(serving={"models": {"hl": {}}})
    assert {(model.name, model.base) for model in built.serving.models} == {("hl", MODEL)}
    assert {node.model for node in built.nodes} == {MODEL}


def test_a_product_without_models_may_call_all_of_them() -> None:
    gateway = {"products": {"one": {"display_name": "1", "models": ["hl"]}, "all": {"display_name": "A"}}}
    products = {product.id: product.models for product in plan(gateway=gateway).gateway.products}
    assert products == {"all": ("hl", MODEL), "one": ("hl",)}


@pytest.mark.parametrize(("environment", "protect"), [("dev", False), ("test", False), ("prod", True)])
def test_only_prod_protects(environment: str, protect: bool) -> None:
    assert plan(environment=environment).protect is protect


def test_tags_say_whose_a_resource_is() -> None:
    assert dict(plan(tags={"owner": "me"}).tags) == {
        "project": "h100-inference",
        "stack": "dev",
        "environment": Environment.DEV,
        "owner": "me",
        "cost-centre": "research",
    }


def test_a_change_of_model_moves_nothing_that_a_vm_is_made_of() -> None:
    before, after = plan(), plan(serving={"models": {"hl": {"system_prompt": "New."}}})
    for part in ("compute", "names", "addresses", "store", "flows", "platform_flows", "security_rules"):
        assert getattr(before, part) == getattr(after, part)
    assert before.serving != after.serving


def test_max_shares_is_the_disks_ceiling_so_that_adding_a_node_never_changes_the_disk() -> None:
    one, two = plan(nodes={"count": 1}), plan(nodes={"count": 2})
    assert one.store == two.store


def test_bastions_subnet_and_its_rules_come_together() -> None:
    for sku in ("none", "Developer", "Basic", "Standard", "Premium"):
        built = plan(access={"bastion": {"sku": sku}})
        assert built.has_bastion_subnet == (sku in ("Basic", "Standard", "Premium"))
        assert (Segment.BASTION in built.security_rules) == built.has_bastion_subnet


def test_a_plan_is_frozen_all_the_way_down() -> None:
    built = plan(model_store=FILES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        built.stack = "x"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        built.nodes[0].number = 9  # type: ignore[misc]
    for mapping in (built.tags, built.security_rules, built.addresses.subnets):
        with pytest.raises(TypeError):
            mapping["x"] = "y"  # type: ignore[index]
