"""Whether each model fits the nodes that serve it, and its engine's parallel sizes, by huddle's planner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from huddle import planner, shapes
from huddle.errors import Fault, InputError
from huddle.launch import copies
from huddle.planner import FitResult, speed
from huddle.registry import Model, Registry
from plan.model import EnginePlan, FleetPlan, Hardware
from plan.vocabulary import Topology

CPU_SHARE = 1 / 8
"""Ours: of a machine's memory, for weights. A larger model would load, and take minutes for a sentence."""
_BYTES_PER_PARAMETER = 2

P = TypeVar("P", bound=FleetPlan)


def with_engines(plan: P, registry: Registry, file: str, sizes: Mapping[str, Hardware] = MappingProxyType({})) -> P:
    """The plan with the layout of each base model's engines. `sizes`: what nodes of the target can be, by name.

    Raises:
        InputError: a model does not fit, or leaves GPUs idle; the sentence carries the planner's reason, what would
            fit and which size holds it on one node.
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
        engine = _engine(base, fit, registry.models[base])
        if not fit.fits:
            *others, last = fit.refusals
            reasons = [*others, last + _size_that_holds(registry.models[base], sizes)]
            faults += [Fault(file, f"serving.models.{base}", reason) for reason in reasons]
        elif plan.serving.topology is Topology.DISTRIBUTED and fit.layout.world < fit.hardware.total:
            faults.append(
                Fault(
                    file,
                    "serving.topology",
                    f"'distributed' spreads one model over all nodes, but {base} runs best as {fit.layout}; "
                    f"allowed here: {Topology.REPLICAS}",
                )
            )
        elif reason := _idle_or_missing(engine, fit.hardware.total, allow_idle=plan.allow_idle_gpus):
            faults.append(Fault(file, f"serving.models.{base}", reason))
        engines.append(engine)
    if faults:
        raise InputError(*faults)
    return replace(plan, serving=replace(plan.serving, engines=tuple(engines)))


def _engine(base: str, fit: FitResult, model: Model) -> EnginePlan:
    """Engines fill a node. One that holds copies of its own, or spans nodes, is the only one there."""
    layout = fit.layout
    alone = fit.hardware.nodes > 1 or copies.spreads_itself(model.extra_args)
    engine = EnginePlan(
        base,
        layout.tensor,
        layout.pipeline,
        copies=1 if alone else layout.replicas,
        data_parallel=copies.data_parallel(model.extra_args),
        cold_start_s=round(speed.start_s(fit.shape, layout, cold=True)),
    )
    return replace(engine, idle_gpus=max(fit.hardware.total - engine.gpus_of_one * engine.replicas, 0))


def _size_that_holds(model: Model, sizes: Mapping[str, Hardware]) -> str:
    """The first size of which one node holds the model, to end a sentence with."""
    for name, size in sizes.items():
        if not size.on_cpu:
            fit = planner.check(model, gpu=size.gpu, gpus_per_node=size.gpus, fabric=size.fabric)
            if fit.fits:
                return f"; one {name} holds it as {fit.layout}"
    return "; no size holds it on one node" if sizes else ""


def _idle_or_missing(engine: EnginePlan, here: int, *, allow_idle: bool) -> str | None:
    """Layouts of the planner fill a node; an entry with data parallel of its own says how many GPUs it takes."""
    used = engine.gpus_of_one * engine.replicas
    if used == here or (used < here and allow_idle):
        return None
    idle = f", and {here - used} would be idle" if used < here else ""
    allow = ", or set nodes.allow_idle_gpus: true" if used < here else ""
    return (
        f"takes {used} GPUs by --data-parallel-size of its registry entry's extra_args, the node has {here}{idle}; "
        f"make it {here // engine.gpus_of_one}, or leave it out: an engine for each GPU is the default{allow}"
    )


def described(engine: EnginePlan) -> str:
    """What runs on each node of a base model, in a few words: which GPUs are used, and which are not."""
    many = f"{engine.copies} engines" if engine.copies > 1 else "one engine"
    many += f" with {engine.data_parallel} copies" if engine.data_parallel > 1 else ""
    split = f" (TP {engine.tensor_parallel} × PP {engine.pipeline_parallel})" if engine.gpus_of_one > 1 else ""
    idle = f", {engine.idle_gpus} idle" if engine.idle_gpus else ""
    return f"{engine.base}: {many}{split}{idle}"


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
