"""Whether each model fits the nodes that serve it, and its engine's parallel sizes, by huddle's planner."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from huddle import planner
from huddle.errors import Fault, InputError
from huddle.registry import Registry
from plan.model import EnginePlan, FleetPlan, Hardware
from plan.vocabulary import Topology

P = TypeVar("P", bound=FleetPlan)


def with_engines(plan: P, registry: Registry, file: str) -> P:
    """The plan with the layout of each base model's engine.

    Raises:
        InputError: a model does not fit; the sentence carries the planner's reason and what would fit.
    """
    faults: list[Fault] = []
    engines: list[EnginePlan] = []
    for base in sorted({model.base for model in plan.serving.models}):
        kinds = {node.hardware for node in plan.nodes if node.model == base}
        if len(kinds) > 1:
            sentence = f"is on nodes that differ: {_kinds(kinds)}; use one kind"
            faults.append(Fault(file, f"serving.models.{base}", sentence))
            continue
        (hardware,) = kinds
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
        engines.append(EnginePlan(base, fit.layout.tensor, fit.layout.pipeline))
    if faults:
        raise InputError(*faults)
    return replace(plan, serving=replace(plan.serving, engines=tuple(engines)))


def _kinds(kinds: set[Hardware]) -> str:
    return ", ".join(sorted(f"{kind.gpus} x {kind.gpu} ({kind.fabric})" for kind in kinds))
