"""Models that can't fit are refused before anything is created; the others get their layout from the planner."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from huddle import registry
from huddle.errors import InputError
from infra import program
from infra.reports.usage import report
from plan import stack_file
from plan.azure.model import AzurePlan
from plan.azure_facts import VM_SIZES
from plan.engines import described, with_engines
from plan.model import EnginePlan
from plan.settings.azure import AzureSettings


def planned(**changes: Any) -> AzurePlan:
    values = stack_file.load("dev").model_dump(mode="json", exclude_unset=True)
    for area, change in changes.items():
        values[area] = {**values.get(area, {}), **change}
    return program.plan_of(AzureSettings.model_validate(values), "dev")


def test_a_model_that_fits_one_gpu_is_served_whole() -> None:
    plan = planned()
    assert plan.serving.engines == (EnginePlan("llama-3.2-3b", 1, 1, cold_start_s=115),)
    assert plan.serving.engine("llama-3.2-3b") == EnginePlan("llama-3.2-3b", 1, 1, cold_start_s=115)


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


ANY_SIZE = {"count": 1, "quota_vcpus": 96}


@pytest.mark.parametrize("size", [name for name, size in VM_SIZES.items() if size.gpus])
@pytest.mark.parametrize("model", registry.load().models)
def test_engines_take_every_gpu_that_is_paid_for_or_the_size_that_fits_is_named(size: str, model: str) -> None:
    changes: dict[str, Any] = {"nodes": {"size": size, **ANY_SIZE}, "gateway": {"products": _products()}}
    try:
        (engine,) = planned(serving={"models": {model: {}}}, **changes).serving.engines
    except InputError as refused:
        fits = re.findall(r"; (?:one (\S+) holds it as .*|no size holds it on one node)", str(refused))
        assert fits, refused
        for better in filter(None, fits):
            planned(
                serving={"models": {model: {}}}, nodes={"size": better, **ANY_SIZE}, gateway={"products": _products()}
            )
        return
    assert engine.copies * engine.tensor_parallel * engine.pipeline_parallel == VM_SIZES[size].gpus
    assert engine.idle_gpus == 0


def spread(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, **nodes: Any) -> AzurePlan:
    """The plan of two GPUs, for an entry of the registry that has words for vllm of its own."""
    known = registry.load()
    entry = known.models["llama-3.2-3b"].model_copy(update={"extra_args": words})
    changed = replace(known, models={**known.models, entry.name: entry})
    monkeypatch.setattr(registry, "load", lambda *_: changed)
    return planned(nodes={"size": "Standard_NC80adis_H100_v5", **ANY_SIZE, **nodes})


def test_an_entry_that_spreads_itself_has_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = spread(("--data-parallel-size", "2"), monkeypatch)
    (engine,) = plan.serving.engines
    assert (engine.copies, engine.replicas, engine.idle_gpus) == (1, 2, 0)
    assert described(engine) == "llama-3.2-3b: one engine with 2 copies"
    assert report.capacity(plan, 1, "dev").engines == 2, "both copies are paid for and used"


def test_a_gpu_without_an_engine_is_refused_or_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--data-parallel-size=1",)
    with pytest.raises(InputError) as caught:
        spread(words, monkeypatch)
    assert str(caught.value) == (
        "stacks/Pulumi.dev.yaml: serving.models.llama-3.2-3b: takes 1 GPUs by --data-parallel-size of its registry "
        "entry's extra_args, the node has 2, and 1 would be idle; make it 2, or leave it out: an engine for each GPU "
        "is the default, or set nodes.allow_idle_gpus: true"
    )
    (engine,) = spread(words, monkeypatch, allow_idle_gpus=True).serving.engines
    assert (engine.copies, engine.idle_gpus) == (1, 1)


def test_an_entry_that_wants_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"takes 4 GPUs .*, the node has 2; make it 2, or leave it out"):
        spread(("-dp", "4"), monkeypatch, allow_idle_gpus=True)


def test_a_model_across_nodes_is_laid_out_over_all_of_them() -> None:
    plan = planned(
        serving={"models": {"llama-3.1-70b": {}}, "topology": "distributed"}, gateway={"products": _products()}
    )
    assert plan.serving.engines == (EnginePlan("llama-3.1-70b", 1, 2, cold_start_s=162),)


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
