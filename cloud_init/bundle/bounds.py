"""What each unit may take of its machine, so that one that takes too much ends alone.

The shares of the engines, of Ray and of JupyterLab are percent of the memory that systemd finds; together they leave a
tenth for the system and the small units.
"""

from __future__ import annotations

from dataclasses import dataclass

from cloud_init.bundle.services import Unit
from cloud_init.bundle.wrapper_config import wrapper_config
from huddle.wrapper.config import WrapperConfig
from plan.model import FleetPlan
from plan.vocabulary import Topology

_MIB = 1024 * 1024


@dataclass(frozen=True)
class Bounds:
    """`memory`, `tasks` and `files` as systemd's MemoryMax=, TasksMax= and LimitNOFILE= take them.

    `oom`: with `kill` the whole unit ends when its memory is full, and Restart= brings it back. systemd's own choice
    would first ask the rest of it to stop, which for an engine means minutes of drain.
    """

    memory: str
    tasks: int
    files: int
    oom: str = "kill"


def of(plan: FleetPlan, unit: Unit) -> Bounds:
    """The bounds of a unit."""
    # Of a model across nodes, Ray's workers hold the parts; the engine's own unit has its API server and scheduler.
    engine, ray = ("10%", "70%") if plan.serving.topology is Topology.DISTRIBUTED else (_engine_share(plan), "16G")
    match unit:
        case Unit.VLLM:
            return Bounds(engine, 32_768, 1_048_576)
        case Unit.RAY:
            return Bounds(ray, 32_768, 1_048_576)
        case Unit.JUPYTER:
            # A notebook's kernel ends alone.
            return Bounds("10%", 4_096, 65_536, oom="continue")
        case Unit.MODELS:
            return Bounds("8G", 1_024, 65_536)
        case Unit.WRAPPER:
            configs = [WrapperConfig.model_validate(wrapper_config(plan, node)) for node in plan.nodes]
            return Bounds(f"{max(config.memory_bytes for config in configs) // _MIB}M", 256, 65_536)
        case Unit.PROBE:
            return Bounds("256M", 64, 1_024)
        case Unit.FIREWALL:
            return Bounds("256M", 16, 1_024)


def _engine_share(plan: FleetPlan) -> str:
    """Three quarters for all engines of a node. One unit file serves all nodes: the node with the fewest decides."""
    fewest = min(plan.serving.copies(node.model) for node in plan.nodes)
    return f"{75 // fewest}%"
