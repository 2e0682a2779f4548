"""Whether each model fits the nodes that serve it, and its engine's parallel sizes, by huddle's planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from huddle import planner, shapes
from huddle.errors import Fault, InputError
from huddle.planner import speed
from huddle.registry import Model, Registry
from plan.model import EnginePlan, FleetPlan, Hardware
from plan.vocabulary import Topology

CPU_SHARE = 1 / 8
"""Ours: of a machine's memory, for weights. A larger model would load, and take minutes for a sentence."""
_BYTES_PER_PARAMETER = 2

P = TypeVar("P", bound=FleetPlan)


def with_engines(plan: P, registry: Registry, file: str) -> P:
    """The plan with the layout of each base model's engine.

    Raises:
        InputError: a model does not fit; the sentence carries the planner's reason and what would fit.
    """
    faults: list[Fault] = []
    engines: list[EnginePlan] = []
    if len({node.hardware.on_cpu for node in plan.nodes}) > 1:
        raise InputError(Fault(file, "nodes", "some have GPUs and some have none; one bundle has one kind of engine"))
    for base in sorted({model.base for model in plan.serving.models}):
        kinds = {node.hardware for node in plan.nodes if node.model == base}
        if len(kinds) > 1:
            sentence = f"is on nodes that differ: {_kinds(kinds)}; use one kind"
            faults.append(Fault(file, f"serving.models.{base}", sentence))
            continue
        (hardware,) = kinds
        if hardware.on_cpu:
            faults += [Fault(file, key, why) for key, why in _cpu_problems(registry.models[base], hardware, plan)]
            engines.append(EnginePlan(base, 1, 1))
            continue
        try:
            fit = planner.check(
                registry.models[base],
                gpu=hardware.gpu,
                gpus_per_node=hardware.gpus,
                nodes=len(plan.nodes) if plan.serving.topology is Topology.DISTRIBUTED else 1,
                fabric=hardware.fabric,
            )
        except InputError as error:  # such as a model without a shape
            faults += error.faults
            continue
        if not fit.fits:
            faults += [Fault(file, f"serving.models.{base}", reason) for reason in fit.refusals]
        elif plan.serving.topology is Topology.DISTRIBUTED and fit.layout.world < fit.hardware.total:
            faults.append(
                Fault(
                    file,
                    "serving.topology",
                    f"'distributed' spreads one model over all nodes, but {base} runs best as {fit.layout}; "
                    f"allowed here: {Topology.REPLICAS}",
                )
            )
        start_s = round(speed.start_s(fit.shape, fit.layout, cold=True))
        engines.append(EnginePlan(base, fit.layout.tensor, fit.layout.pipeline, start_s))
    if faults:
        raise InputError(*faults)
    return replace(plan, serving=replace(plan.serving, engines=tuple(engines)))


def _cpu_problems(model: Model, hardware: Hardware, plan: FleetPlan) -> Iterator[tuple[str, str]]:
    """Why the engine for the CPU should not be asked for this; the planner knows GPUs only."""
    key = f"serving.models.{model.name}"
    if plan.serving.topology is Topology.DISTRIBUTED:
        yield "serving.topology", f"'distributed' needs GPUs; allowed on nodes without: {Topology.REPLICAS}"
    if model.quantization:
        yield key, f"is quantised ({model.quantization}), which needs a GPU; choose a model in bfloat16"
    weights_gib = shapes.for_model(model).parameters * _BYTES_PER_PARAMETER / 1024**3
    if weights_gib > hardware.memory_gib * CPU_SHARE:
        yield (
            key,
            f"has {weights_gib:.1f} GiB of weights; allowed on a node without GPU: an eighth of its "
            f"{hardware.memory_gib} GiB of memory",
        )


def _kinds(kinds: set[Hardware]) -> str:
    return ", ".join(sorted(f"{kind.gpus} x {kind.gpu} ({kind.fabric})" for kind in kinds))
