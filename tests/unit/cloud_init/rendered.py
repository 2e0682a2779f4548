"""Plans of every kind and what cloud_init makes of them, built once for all tests."""

from __future__ import annotations

import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

from cloud_init import bundle
from cloud_init import user_data as render
from cloud_init.delivery import run_command
from infra import program
from plan.azure.model import AzurePlan
from plan.model import NodePlan
from tests.unit import stack_values

MODEL, OTHER_MODEL = stack_values.MODEL, stack_values.OTHER_MODEL
AZURE_FILES = {"model_store": stack_values.FILES}
JUPYTER = {"jupyter": {"enabled": True}}
TWO_GPUS = {"nodes": {"size": "Standard_NC80adis_H100_v5", "quota_vcpus": 160}}
"""Two engines on each node."""
DISTRIBUTED = {
    "nodes": {"size": "Standard_ND96isr_H100_v5", "quota_vcpus": 192},
    "serving": {"topology": "distributed", "models": {"llama-3.1-405b": {}}},
}
"""The one shipped model that needs two nodes: eight GPUs split each layer, two nodes follow each other."""
VAULT_URI = "https://huddleai-dev-kv.vault.azure.net/"
CLIENT_ID = "00000000-1111-2222-3333-444444444444"
HEAD, WORKER = "huddleai-h100-node-1", "huddleai-h100-node-2"


@cache
def plans() -> dict[str, AzurePlan]:
    """One plan for each way that templates can turn."""
    return {
        "dev": program.load_plan("dev"),
        "prod": program.load_plan("prod"),
        "distributed": _planned(**DISTRIBUTED, **JUPYTER),
        "azure-files": _planned(**AZURE_FILES),
        "two-gpus": _planned(**TWO_GPUS),
    }


def _planned(**changes: Any) -> AzurePlan:
    """A plan as the program makes it, engines' paths included."""
    return program.plan_of(stack_values.settings(**changes), "dev")


KINDS = ("dev", "prod", "distributed", "azure-files", "two-gpus")


@cache
def built(kind: str) -> bundle.Bundle:
    """The bundle of a plan."""
    return bundle.build(plans()[kind])


SECRETS = run_command.SecretSource(VAULT_URI, CLIENT_ID)


def script(plan: AzurePlan, node: NodePlan, of: bundle.Bundle) -> str:
    """The run-command script that brings a bundle to a node."""
    return run_command.prepare_script(plan, node, of, SECRETS)


def custom_data(number: int = 0, **changes: Any) -> str:
    """customData of one node of a changed dev stack."""
    plan = stack_values.plan(**changes)
    return render.custom_data(plan, plan.nodes[number], plan.compute.login)


def digest(**changes: Any) -> str:
    """The bundle's digest for a changed dev stack."""
    return built_of(**changes).digest


def built_of(**changes: Any) -> bundle.Bundle:
    """The bundle of a changed dev stack."""
    return bundle.build(stack_values.plan(**changes))


def write(files: dict[str, bytes], folder: Path) -> None:
    """Lay files below a folder."""
    for path, content in files.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def crc(text: str) -> int:
    """A short name for a long text."""
    return zlib.crc32(text.encode())


def node_json(kind: str, host: str) -> dict[str, Any]:
    """What a stack's bundle says of one node."""
    found: dict[str, Any] = json.loads(built(kind).files[f"nodes/{host}/node.json"])
    return found


def environment(kind: str, host: str, file: str) -> dict[str, str]:
    """An environment file of a node."""
    lines = built(kind).files[f"nodes/{host}/{file}"].decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def launch_words(kind: str, host: str) -> str:
    """What a node's unit gives to `huddle launch`."""
    return environment(kind, host, "engine.env")["HUDDLE_LAUNCH_WORDS"]
