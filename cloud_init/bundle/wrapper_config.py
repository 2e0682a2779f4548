"""A node's wrapper.yaml, from the plan. Its schema is huddle.wrapper.config's; a test loads what is written here."""

from __future__ import annotations

from typing import Any

from cloud_init.bundle import prompts, shipped_registry
from cloud_init.bundle.prompts import PromptFile
from huddle.probe import verdict
from huddle.wrapper.config import LimitsConfig
from huddle.wrapper.routes import EngineRoute
from plan.model import FleetPlan, NodePlan
from plan.ports import WRAPPER_METRICS_PORT, engine_ports
from plan.vocabulary import Segment

CURRENT = "/opt/huddle/current"
"""The link to the bundle that serves now: paths in configuration go through it, so that they survive an update."""
RELOADABLE = ("models", "products", "gateway_addresses")
"""What the wrapper reads again on SIGHUP, without dropping a stream."""


def wrapper_config(plan: FleetPlan, node: NodePlan) -> dict[str, Any]:
    """The configuration of one node's wrapper. The gateway enforces the products' limits; the key is a credential."""
    here = {served.name: served for served in plan.serving.models if node.number in served.nodes}
    copies = plan.serving.copies(node.model)
    first, last = engine_ports(plan.serving.vllm_port, copies)
    return {
        "listen": f"{node.address}:{plan.serving.wrapper_port}",
        "metrics_listen": f"127.0.0.1:{WRAPPER_METRICS_PORT}",
        "upstream": _one_or_all([f"http://127.0.0.1:{port}" for port in range(first, last + 1)]),
        "probe_verdict_file": _one_or_all([str(verdict.path_of(copy)) for copy in range(copies)]),
        **_limits(plan.serving.replicas(node.model)),
        # A node that goes rests at the gateway for as long as it waits itself before the next one leaves.
        **({"timeouts": {"restart_s": plan.rejoin_s}} if plan.rejoin_s else {}),
        "gateway_addresses": [str(plan.callers[Segment.GATEWAY])],
        "models": {
            name: _prompt(prompts.of_model(served)) | _routes(served.routes) | _priority(name)
            for name, served in here.items()
        },
        "products": {
            product.id: {
                "models": models,
                **_routes(product.routes),
                **_prompt(prompts.of_product(product.id, product.system_prompt)),
                "weight": product.weight,
            }
            for product in plan.products
            # A product none of whose models this node serves is unknown here: no list would mean every model.
            if (models := [name for name in product.models if name in here])
        },
    }


def _one_or_all(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values


def _limits(replicas: int) -> dict[str, dict[str, int]]:
    """The wrapper's own are for one copy of a model: several have room for more at the same time."""
    if replicas == 1:
        return {}
    each = LimitsConfig()
    concurrency = replicas * each.concurrency
    return {"limits": {"concurrency": concurrency, "connections": max(each.connections, 2 * concurrency)}}


def _routes(words: tuple[EngineRoute, ...] | None) -> dict[str, list[str]]:
    return {} if words is None else {"routes": [word.value for word in words]}


def _priority(name: str) -> dict[str, bool]:
    by_priority = shipped_registry.load().resolve(name).model.schedules_by_priority
    return {"priority_scheduling": True} if by_priority else {}


def _prompt(prompt: PromptFile | None) -> dict[str, str]:
    return {} if prompt is None else {"system_prompt_file": f"{CURRENT}/{prompt.path}"}
