"""Which services a node runs, in the order of their start, and what each is made from.

A service restarts when what it is made from changes. What it can read again while running is kept apart (`reload`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from hashlib import sha256

from cloud_init.bundle import firewall
from plan.model import FleetPlan, NodePlan
from plan.secrets import Secret
from plan.vocabulary import Role, Topology

JUPYTER_TOKEN = "jupyter_token"  # noqa: S105 - a file's name
"""The credential that a node makes itself."""


@verify(UNIQUE)
class Unit(StrEnum):
    """Our services, by the names in the port table. With an @ it is a template: each engine has one of its own."""

    FIREWALL = "huddle-firewall.service"
    RAY = "huddle-ray.service"
    MODELS = "huddle-models.service"
    VLLM = "huddle-vllm@.service"
    WRAPPER = "huddleai_api.service"
    PROBE = "huddle-probe@.service"
    JUPYTER = "huddle-jupyter.service"

    def of(self, copy: int) -> str:
        """The unit of one engine, made from a template."""
        return self.value.replace("@", f"@{copy}")


@dataclass(frozen=True)
class NodeService:
    """One service. `restart_on` and `reload_on`: files of the bundle; `credentials`: files below
    /etc/huddle/credentials; `follows`: a restart of those restarts it too.
    """

    unit: str
    restart_on: tuple[str, ...]
    reload_on: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    reads_model: bool = False
    """Whether another copy of the model on the NVMe makes it another service."""


def serves(plan: FleetPlan, node: NodePlan) -> bool:
    """Whether a node has an engine and a wrapper of its own. A model across all nodes answers on its head only."""
    return plan.serving.topology is Topology.REPLICAS or node.role is Role.HEAD


def engines(plan: FleetPlan, node: NodePlan) -> tuple[str, ...]:
    """The units of a node's engines, one for each copy; none where another node has the engine."""
    return tuple(map(Unit.VLLM.of, range(plan.serving.copies(node.model)))) if serves(plan, node) else ()


def services(plan: FleetPlan, node: NodePlan, code: Mapping[Unit, tuple[str, ...]]) -> tuple[NodeService, ...]:
    """A node's services in start order. `code`: the bundle's paths of each program's source files."""
    return tuple(_services(plan, node, code))


def _services(plan: FleetPlan, node: NodePlan, code: Mapping[Unit, tuple[str, ...]]) -> Iterator[NodeService]:
    own = f"nodes/{node.name}"
    libraries = "requirements/engine.lock"
    distributed = plan.serving.topology is Topology.DISTRIBUTED
    yield NodeService(Unit.FIREWALL, restart_on=(_unit_file(Unit.FIREWALL),), reload_on=(f"rootfs{firewall.PATH}",))
    yield NodeService(
        Unit.RAY,
        restart_on=(_unit_file(Unit.RAY), "bin/huddle-ray", "bin/huddle-ray-guard", f"{own}/ray.env", libraries),
        credentials=(Secret.RAY_TOKEN.key,),
        # Ray's workers on each node hold a part of a model across nodes: when one takes another copy, all load again.
        reads_model=distributed,
    )
    yield NodeService(Unit.MODELS, restart_on=(_unit_file(Unit.MODELS), f"{own}/model.json"), reads_model=True)
    if serves(plan, node):
        for engine in engines(plan, node):
            yield NodeService(
                engine,
                restart_on=(
                    _unit_file(Unit.VLLM),
                    f"{own}/engine.env",
                    "registry/",
                    libraries,
                    *code[Unit.VLLM],
                ),
                credentials=(Secret.RAY_TOKEN.key,) if distributed else (),
                follows=(Unit.MODELS, Unit.RAY) if distributed else (Unit.MODELS,),
            )
        yield NodeService(
            Unit.WRAPPER,
            restart_on=(_unit_file(Unit.WRAPPER), f"{own}/wrapper.fixed.json", libraries, *code[Unit.WRAPPER]),
            reload_on=(f"{own}/wrapper.yaml", "prompts/"),
            credentials=(Secret.BACKEND_KEY.key,),
            # So that an update of the engine drains the wrapper first, while there is still an engine behind it.
            follows=engines(plan, node),
        )
        for copy in range(plan.serving.copies(node.model)):
            yield NodeService(Unit.PROBE.of(copy), restart_on=(_unit_file(Unit.PROBE), libraries, *code[Unit.PROBE]))
    if plan.jupyter.enabled and node.role is Role.HEAD:
        yield NodeService(
            Unit.JUPYTER,
            restart_on=(_unit_file(Unit.JUPYTER), "requirements/jupyter.lock"),
            credentials=(JUPYTER_TOKEN,),
        )


def fingerprint(files: Mapping[str, bytes], paths: tuple[str, ...]) -> str:
    """One digest over files of the bundle; a path that ends with `/` stands for everything below it."""
    digest = sha256()
    for path in sorted(files):
        if any(path == wanted or (wanted.endswith("/") and path.startswith(wanted)) for wanted in paths):
            digest.update(f"{path}\0{len(files[path])}\0".encode() + files[path])
    return digest.hexdigest()


def _unit_file(unit: Unit) -> str:
    return f"rootfs/etc/systemd/system/{unit}"
