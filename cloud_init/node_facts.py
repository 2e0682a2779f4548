"""node.json and model.json: what the program on a node must know about it. Read by huddle_apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from cloud_init import disks, prompts
from cloud_init.services import Credential, Unit, serves
from huddle import registry, versions
from infra.plan import NodePlan, Plan
from infra.vocabulary import Role, Topology

VAULT_SECRETS = {
    Credential.BACKEND_KEY: "backend-key",
    Credential.RAY_TOKEN: "ray-token",
    Credential.MODEL_HUB_TOKEN: "model-hub-token",
}
"""Names in Key Vault, where names have hyphens only."""
OPTIONAL_SECRETS = (Credential.MODEL_HUB_TOKEN,)


DEADLINES_S: Mapping[str, int] = MappingProxyType(
    {
        "machine": 300,
        "packages": 900,
        "credentials": 300,
        "libraries": 1800,  # 4 GB of wheels
        "staging": 5400,  # 150 GB at the 200 MB/s of a P30 that five nodes share, and room
        "readiness": 1200,
    }
)
"""Seconds that each phase on the node may take. Start times: h100_measurements 1.2 (276 s for 70B, caches cold)."""
APPLY_DEADLINE_S = sum(DEADLINES_S.values())
"""The longest that applying a bundle can take; a run command needs at least this as its timeout."""


def node(plan: Plan, one: NodePlan, services: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The facts of one node."""
    distributed = plan.serving.topology is Topology.DISTRIBUTED
    return {
        "node": one.name,
        "role": one.role,
        "python": versions.load().engine.python,
        "address": str(one.address),
        "packages": sorted({*disks.packages(plan), "python3-venv", "xz-utils"}),
        "enable": ["mnt-nvme.mount", "huddle-workspace.service", disks.model_mount(plan)],
        "services": list(services),
        "credentials": {
            **{
                name.value: {"secret": secret, "required": name not in OPTIONAL_SECRETS}
                for name, secret in VAULT_SECRETS.items()
            },
        },
        "generated_credentials": [Credential.JUPYTER_TOKEN] if _has(services, Unit.JUPYTER) else [],
        "expects": {
            "gpus": plan.compute.size.gpus,
            "ray": {
                "address": f"{plan.serving.head_address}:{plan.serving.ray_gcs_port}",
                "nodes": len(plan.nodes),
                # A head needs every node for a model across nodes; a replica serves without any.
                "required": distributed and one.role is Role.HEAD,
            },
            "wrapper": f"http://{one.address}:{plan.serving.wrapper_port}",
            "answers": _answers(plan, one) if serves(plan, one) else [],
        },
        "deadlines_s": dict(DEADLINES_S),
    }


def model(one: NodePlan) -> dict[str, Any]:
    """The model whose files must lie on the node's NVMe."""
    entry = registry.load().models[one.model]
    return {
        "name": entry.name,
        "directory": entry.store_directory,
        "repository": entry.model,
        "revision": entry.revision,
        "digest": entry.digest,
    }


def _answers(plan: Plan, one: NodePlan) -> list[dict[str, Any]]:
    """Which served names must answer, and with which system prompt."""
    found = ((served.name, prompts.of_model(served)) for served in plan.serving.models if one.number in served.nodes)
    return [{"model": name, "prompt_sha256": prompt.sha256 if prompt else None} for name, prompt in found]


def _has(services: Sequence[dict[str, Any]], unit: Unit) -> bool:
    return any(service["unit"] == unit for service in services)
