"""Targets are a seam: a stack of another target goes through settings, rules, plan and bundle."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest

from cloud_init import bundle
from huddle import registry
from huddle.errors import InputError
from infra import targets as target_modules
from plan import stack_file
from plan.engines import with_engines
from plan.model import FleetPlan
from plan.targets import TARGETS
from tests.unit.plan.lab_target import WITH_LAB
from tests.unit.stack_values import FILE, MODEL, bases, changed

LAB = {
    "target": "lab",
    "environment": "dev",
    "bench": {"bench-1": "10.1.0.1", "bench-2": "10.1.0.2"},
    "serving": {"models": {MODEL: {}}},
    "gateway": {"products": {"apps": {"display_name": "Apps", "system_prompt": "Be brief."}}},
}


def plan(**changes: Any) -> FleetPlan:
    values = {f"{stack_file.PROJECT}:{key}": value for key, value in {**LAB, **changes}.items()}
    settings = stack_file.from_values(values, "dev", WITH_LAB)
    build = WITH_LAB[settings.target].build
    made = build(settings, project=stack_file.PROJECT, stack="dev", bases=bases(), file=FILE)
    return with_engines(made, registry.load(), FILE)


def refusal(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        plan(**changes)
    return str(caught.value)


def test_a_new_target_gets_a_bundle_without_a_line_of_the_product() -> None:
    made = plan()
    files = bundle.build(made).files
    assert {"nodes/bench-1/node.json", "nodes/bench-2/node.json"} <= set(files)
    assert json.loads(files["nodes/bench-2/node.json"])["expects"]["wrapper"] == "http://10.1.0.2:8000"
    assert files["prompts/products/apps.txt"] == b"Be brief.\n"
    assert b"What=/dev/disk/by-label/models\n" in files["rootfs/etc/systemd/system/mnt-models.mount"]


def test_common_rules_hold_on_every_target() -> None:
    assert refusal(serving={"models": {"hl": {"nodes": [3]}}}) == "\n".join(
        [
            f"{FILE}: serving.models.hl.nodes: 3 is not a node; allowed: 1-2",
            f"{FILE}: serving.models: node 1 has no model; allowed: exactly one base model on each node",
            f"{FILE}: serving.models: node 2 has no model; allowed: exactly one base model on each node",
        ]
    )


def test_a_plan_without_nodes_is_one_sentence() -> None:
    assert refusal(bench={}) == f"{FILE}: bench: has no machine; name one at least"


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"network": {"nodes_subnet": "10.0.0.0/24"}}, "network"),
        ({"access": {}}, "access"),
        ({"gateway": {**LAB["gateway"], "tier": "StandardV2"}}, "gateway.tier"),
    ],
)
def test_a_key_of_another_target_says_whose_it_is(changes: dict[str, Any], key: str) -> None:
    assert refusal(**changes) == f"{FILE}: {key}: is a key of target azure, and this stack's target is lab; remove it"


def test_no_region_is_asked_where_there_is_no_azure_and_azure_knows_nothing_of_the_bench() -> None:
    assert plan().target == "lab"
    with pytest.raises(InputError) as caught:
        stack_file.from_values(changed(bench={"bench-1": "10.1.0.1"}), "dev", WITH_LAB)
    assert str(caught.value) == f"{FILE}: bench: is a key of target lab, and this stack's target is azure; remove it"


@pytest.mark.parametrize("target", ["hosts", "", 5, None, ["azure"], {"azure": 1}])
def test_a_target_that_does_not_exist_is_refused_with_those_that_do(target: object) -> None:
    with pytest.raises(InputError) as caught:
        stack_file.from_values(changed(target=target), "dev")
    shown = "is empty; it" if target is None else repr(target)
    assert str(caught.value) == f"{FILE}: target: {shown} is not allowed; allowed: azure"


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_answers_all_that_the_roof_asks(name: str) -> None:
    asked = [each for each in vars(target_modules.TargetModule) if not each.startswith("_")]
    module = target_modules.of(name)
    assert asked
    assert [each for each in asked if not callable(getattr(module, each, None))] == []


def test_what_the_bundle_is_made_from_is_a_fleet() -> None:
    assert get_type_hints(bundle.build)["plan"] is FleetPlan
