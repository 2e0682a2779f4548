"""Two nodes of the dev stack on one machine: real Ray, real vLLM on the CPU, the product's units and configuration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cloud_init import bundle
from huddle import versions
from infra import program
from plan.azure.model import AzurePlan
from tests.namespaces import host, node
from tests.namespaces.node import Node
from tools.venvs import node_cpu, vllm_cpu


@dataclass(frozen=True)
class Pair:
    """The head and the worker of one stack."""

    plan: AzurePlan
    head: Node
    worker: Node

    @property
    def both(self) -> tuple[Node, Node]:
        return self.head, self.worker

    @property
    def cluster(self) -> str:
        """Where Ray's nodes meet."""
        return f"{self.plan.head.address}:{self.plan.serving.ray_gcs_port}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both nodes with the bundle and its files in place; nothing runs yet."""
    plan = program.load_plan("dev")
    built = bundle.build(plan)
    pythons = {"node_python": node_cpu.ensure(), "vllm_python": vllm_cpu.ensure(versions.load().engine.vllm)}
    names = [one.name for one in plan.nodes]
    folder = tmp_path_factory.mktemp("hosts")
    with host.two_hosts(folder, names, [str(one.address) for one in plan.nodes]) as hosts:
        yield Pair(plan, *(node.install(one, plan, number, built, **pythons) for number, one in enumerate(hosts, 1)))
