"""Whether each model fits the nodes that serve it, and how its engine is laid out: huddle's planner."""

from __future__ import annotations

from dataclasses import replace

from huddle import planner
from huddle.errors import Fault, InputError
from huddle.registry import Registry
from plan.build_azure import EnginePlan, Plan
from plan.vocabulary import Topology


def with_engines(plan: Plan, registry: Registry, file: str) -> Plan:
    """The plan with the layout of each base model's engine.

    Raises:
        InputError: a model does not fit; the sentence carries the planner's reason and what would fit.
    """
    faults: list[Fault] = []
    engines: list[EnginePlan] = []
    for base in sorted({model.base for model in plan.serving.models}):
        verdict = planner.check(
            registry.models[base],
            gpu=plan.compute.size.gpu,
            gpus_per_node=plan.compute.size.gpus,
            nodes=len(plan.nodes) if plan.serving.topology is Topology.DISTRIBUTED else 1,
            fabric=plan.compute.size.fabric,
        )
        if not verdict.fits:
            faults += [Fault(file, f"serving.models.{base}", reason) for reason in verdict.refusals]
        elif plan.serving.topology is Topology.DISTRIBUTED and verdict.layout.world < verdict.hardware.total:
            faults.append(
                Fault(
                    file,
                    "serving.topology",
                    f"'distributed' spreads one model over all nodes, but {base} runs best as {verdict.layout}; "
                    f"allowed here: {Topology.REPLICAS}",
                )
            )
        engines.append(EnginePlan(base, verdict.layout.tensor, verdict.layout.pipeline))
    if faults:
        raise InputError(*faults)
    return replace(plan, serving=replace(plan.serving, engines=tuple(engines)))
