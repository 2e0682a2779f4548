"""A target that is not in the product: two machines on a bench. It shows what a new target must bring, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal

from pydantic import Field

from huddle.errors import Fault, InputError
from plan.build_service import base_models, products_plan, serving_plan
from plan.model import FleetPlan, Hardware, NodePlan, StorePlan
from plan.placement import Placement
from plan.ports import node_flows
from plan.rules import products, service
from plan.settings.service import ServiceSettings
from plan.targets import TARGETS, Target
from plan.vocabulary import ModelStoreKind, Role, Segment


class LabSettings(ServiceSettings):
    """A bench: its machines' addresses."""

    target: Literal["lab"] = Field("lab", description="What the service runs on.")
    bench: dict[str, IPv4Address] = Field(description="Machines by name.")


RULES = (service.models_on_nodes, service.ports_apart, products.products_and_models, products.nodes_behind)


def build(settings: LabSettings, *, project: str, stack: str, bases: Mapping[str, str], file: str) -> FleetPlan:
    numbers = tuple(range(1, len(settings.bench) + 1))
    if not numbers:
        raise InputError(Fault(file, "bench", "has no machine; name one at least"))
    service.check(RULES, settings, service.Known(bases, numbers), file)
    model_of, hardware = base_models(settings.serving, numbers, bases), Hardware("h100-nvl", 1, 95_830, "tcp-40g")
    clients = (Segment.GATEWAY,)
    machines: Any = enumerate(settings.bench.items(), start=1)
    return FleetPlan(
        project=project,
        stack=stack,
        target=settings.target,
        environment=settings.environment,
        serving=serving_plan(settings.serving, numbers, bases),
        products=products_plan(settings.gateway, Placement(settings.serving, numbers)),
        nodes=tuple(
            NodePlan(n, name, Role.HEAD if n == 1 else Role.WORKER, address, model_of[n], hardware)
            for n, (name, address) in machines
        ),
        callers=dict.fromkeys((Segment.NODES, Segment.GATEWAY), IPv4Network("10.1.0.0/24")),
        flows=tuple(node_flows(settings.serving, settings.jupyter, engines=1, clients=clients, operators=clients)),
        store=StorePlan(ModelStoreKind.SHARED_DISK, "/dev/disk/by-label/models", None),
        jupyter=settings.jupyter,
    )


WITH_LAB = {**TARGETS, "lab": Target("lab", LabSettings, build)}
