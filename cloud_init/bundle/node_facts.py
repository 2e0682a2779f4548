"""node.json and model.json: what the program on a node must know about it. Read by huddle_apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cloud_init import disks
from cloud_init.bundle import firewall, prompts, shipped_registry
from cloud_init.bundle.services import JUPYTER_TOKEN, Unit, engines, serves
from huddle import versions
from huddle.wrapper.routes import EngineRoute
from plan.model import FleetPlan, NodePlan
from plan.secrets import NODE_SECRETS
from plan.vocabulary import ModelStoreKind, Role, Topology

DEADLINES_S: Mapping[str, int] = MappingProxyType(
    {
        "cloud_init": 300,  # waited for twice: by the delivering script, then by the program
        "clock": 60,
        "packages": 240,
        "disks": 60,  # formatting included
        "credentials": 240,
        "libraries": 1800,  # 4 GB of wheels, while the model is staged
        "store": 120,  # for a publication to end; after that a node that has its copy goes on
        "staging": 1800,  # 360 GB at the 200 MB/s of a P30, less where nodes share it; what is staged stays staged
        "readiness": 600,  # 276 s: the longest start seen (docs/facts/gpus.md#start-of-an-engine)
    }
)
"""Seconds that each phase on the node may take; the run command's own time (`components.gpu_node`) covers them."""


_COMPILER = ("g++", "python3-dev")
"""What the engine for the CPU compiles its kernels with (docs/facts/vllm-and-ray.md#engine-for-the-cpu)."""


def longest_s() -> int:
    """How long an apply may take at most, in seconds, from the delivery of the script to its last word.

    Libraries and staging have one time between them. Going back waits for an answer again.
    """
    phases = DEADLINES_S
    return (
        sum(phases.values()) - min(phases["libraries"], phases["staging"]) + phases["cloud_init"] + phases["readiness"]
    )


def packages(plan: FleetPlan) -> list[str]:
    """Debian packages that a node needs, sorted; day 0 and every bundle see to them."""
    compiler = _COMPILER if plan.head.hardware.on_cpu else ()
    return sorted({*disks.packages(plan), firewall.PACKAGE, "python3-venv", "bzip2", *compiler})


def node(plan: FleetPlan, one: NodePlan, services: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of one node."""
    distributed = plan.serving.topology is Topology.DISTRIBUTED
    return {
        "node": one.name,
        "role": one.role,
        "python": versions.load().engine.python,
        "address": str(one.address),
        "packages": packages(plan),
        "enable": ["mnt-nvme.mount", "huddle-workspace.service", disks.model_mount(plan)],
        "services": list(services),
        "credentials": {
            secret.key: {
                "secret": secret.vault_name,
                "required": secret.required,
                "keeps_previous": secret.keeps_previous,
            }
            for secret in NODE_SECRETS
        },
        "store": _store(plan),
        "versions": {name: getattr(versions.load().engine, name) for name in ("vllm", "torch", "ray")},
        "generated_credentials": [JUPYTER_TOKEN] if _has(services, Unit.JUPYTER) else [],
        "expects": {
            "gpus": one.hardware.gpus,
            "ray": {
                "address": f"{plan.head.address}:{plan.serving.ray_gcs_port}",
                "nodes": len(plan.nodes),
                # A head needs every node for a model across nodes; a replica serves without any.
                "required": distributed and one.role is Role.HEAD,
            },
            "wrapper": f"http://{one.address}:{plan.serving.wrapper_port}",
            "answers": _answers(plan, one) if serves(plan, one) else [],
            "engines": list(engines(plan, one)),
        },
        "rejoin_s": plan.rejoin_s,
        "deadlines_s": dict(DEADLINES_S),
    }


def _store(plan: FleetPlan) -> dict[str, Any]:
    """Where the store is, and which one node writes to it (`huddle models publish`, docs/decisions/0006)."""
    device = plan.store.source if plan.store.kind is ModelStoreKind.SHARED_DISK else None
    return {
        "kind": plan.store.kind,
        "device": device,
        "mount": plan.paths.models,
        "unit": disks.model_mount(plan),
        "writer": plan.head.name,
    }


def model(plan: FleetPlan, one: NodePlan) -> dict[str, Any]:
    """The model whose files must lie on the node's NVMe."""
    entry = shipped_registry.load().models[one.model]
    return {
        "name": entry.name,
        "directory": entry.store_directory,
        "repository": entry.model,
        "revision": entry.revision,
        "digest": entry.digest,
        "across_nodes": plan.serving.topology is Topology.DISTRIBUTED,
    }


def _answers(plan: FleetPlan, one: NodePlan) -> list[dict[str, Any]]:
    """Which served names must answer: on which route, under which of the engine's names, with which system prompt."""
    found = ((served, prompts.of_model(served)) for served in plan.serving.models if one.number in served.nodes)
    names = shipped_registry.load().served_names(one.model)
    return [
        {
            "model": served.name,
            "route": next(word.value for word in EngineRoute if served.routes is None or word in served.routes),
            "names": list(names),
            "prompt_sha256": prompt.sha256 if prompt else None,
        }
        for served, prompt in found
    ]


def _has(services: Sequence[dict[str, Any]], unit: Unit) -> bool:
    return any(service["unit"] == unit for service in services)
