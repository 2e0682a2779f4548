"""Models that can't fit are refused before anything is created; the others get their layout from the planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from huddle import registry
from huddle.errors import InputError
from infra import program
from plan import stack_file
from plan.azure.model import AzurePlan
from plan.engines import with_engines
from plan.model import EnginePlan
from plan.settings.azure import AzureSettings


def planned(**changes: Any) -> AzurePlan:
    values = stack_file.load("dev").model_dump(mode="json", exclude_unset=True)
    for area, change in changes.items():
        values[area] = {**values.get(area, {}), **change}
    return program.plan_of(AzureSettings.model_validate(values), "dev")


def test_a_model_that_fits_one_gpu_is_served_whole() -> None:
    plan = planned()
    assert plan.serving.engines == (EnginePlan("llama-3.2-3b", 1, 1, 115),)
    assert plan.serving.engine("llama-3.2-3b") == EnginePlan("llama-3.2-3b", 1, 1, 115)


def test_a_model_that_is_too_large_is_refused_with_what_would_fit() -> None:
    with pytest.raises(InputError) as caught:
        planned(serving={"models": {"llama-3.1-70b": {}}}, gateway={"products": _products()})
    message = str(caught.value)
    assert message.startswith("stacks/Pulumi.dev.yaml: serving.models.llama-3.1-70b: llama-3.1-70b in bf16 weighs 131")
    assert "the smallest that fits" in message


def test_two_gpus_in_a_vm_split_a_model_that_one_can_not_hold() -> None:
    plan = planned(
        serving={"models": {"llama-3.1-70b": {}}},
        nodes={"size": "Standard_NC80adis_H100_v5", "count": 1, "quota_vcpus": 80},
        gateway={"products": _products()},
    )
    (engine,) = plan.serving.engines
    assert engine.tensor_parallel * engine.pipeline_parallel == 2


def test_a_model_across_nodes_is_laid_out_over_all_of_them() -> None:
    plan = planned(
        serving={"models": {"llama-3.1-70b": {}}, "topology": "distributed"}, gateway={"products": _products()}
    )
    assert plan.serving.engines == (EnginePlan("llama-3.1-70b", 1, 2, 162),)


def test_a_small_model_is_not_spread_over_nodes_that_would_idle() -> None:
    with pytest.raises(InputError) as caught:
        planned(serving={"models": {"llama-3.2-3b": {}}, "topology": "distributed"}, gateway={"products": _products()})
    assert "serving.topology: 'distributed' spreads one model over all nodes, but llama-3.2-3b" in str(caught.value)


def _products() -> dict[str, Any]:
    return {"developers": {"display_name": "Developers"}}


def on_cpu(**changes: Any) -> AzurePlan:
    serving = {"models": {"qwen2.5-0.5b": {}}, **changes.pop("serving", {})}
    nodes = {"size": "Standard_L8s_v3", **changes.pop("nodes", {})}
    return planned(serving=serving, nodes=nodes, gateway={"products": _products()}, **changes)


def test_a_small_model_is_served_on_the_cpu() -> None:
    plan = on_cpu()
    assert plan.serving.engines == (EnginePlan("qwen2.5-0.5b", 1, 1),)
    assert plan.head.hardware.on_cpu
    assert not planned().head.hardware.on_cpu


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"serving": {"topology": "distributed"}},
            "serving.topology: 'distributed' needs GPUs; allowed on",
        ),
        (
            {"serving": {"models": {"qwen2.5-7b": {}}}},
            "has 14.2 GiB of weights; allowed on a node without GPU: an eig",
        ),
        (
            {"serving": {"models": {"llama-3.1-70b-fp8": {}}}},
            "is quantised (fp8), which needs a GPU; choose a model",
        ),
        (
            {"environment": "prod"},
            "nodes.size: Standard_L8s_v3 has no GPU, and environment is prod; allowed there: S",
        ),
    ],
    ids=["distributed", "large", "quantised", "prod"],
)
def test_what_a_cpu_is_not_for_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    environment = changes.pop("environment", None)
    with pytest.raises(InputError) as caught:
        if environment:
            values = stack_file.load("proof").model_dump(mode="json", exclude_unset=True)
            program.plan_of(AzureSettings.model_validate({**values, "environment": environment}), "proof")
        on_cpu(**changes)
    assert sentence in str(caught.value)


def test_one_stack_has_one_kind_of_engine() -> None:
    plan = on_cpu(nodes={"count": 2})
    first, second = plan.nodes
    mixed = replace(plan, nodes=(first, replace(second, hardware=planned().head.hardware)))
    with pytest.raises(InputError, match="nodes: some have GPUs and some have none"):
        with_engines(mixed, registry.load(), "stacks/Pulumi.dev.yaml")
