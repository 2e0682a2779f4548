"""The port table of a node: what listens there, and which network segments may call. Neutral: no cloud is named.

Units, the node's own packet filter and a cloud's security rules are all made from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from huddle.launch.request import RENDEZVOUS_PORTS, rendezvous_ports
from plan.settings.service import Jupyter, Ports, Serving
from plan.vocabulary import Segment, Topology

RAY_NODE_MANAGER_PORT = 6380
RAY_OBJECT_MANAGER_PORT = 6381
RAY_RUNTIME_ENV_AGENT_PORT = 6382
RAY_DASHBOARD_AGENT_GRPC_PORT = 6383
RAY_METRICS_PORT = 6384
RAY_DASHBOARD_AGENT_HTTP_PORT = 6385
"""Not Ray's default 52365, which lies among the ephemeral ports that collectives open between nodes."""
RAY_DASHBOARD_METRICS_PORT = 6386
"""Not Ray's default 44227, which lies among the ephemeral ports, too."""
RAY_WORKER_PORTS = (20_000, 20_999)
SSH_PORT = 22
WRAPPER_METRICS_PORT = 9400
COLLECTIVE_PORTS = (40_000, 60_999)
"""NCCL and Gloo take ephemeral ports; the node's ip_local_port_range is set to this range when models span nodes."""

FIXED_PORTS: tuple[tuple[str, int, int], ...] = (
    ("Ray's node manager", RAY_NODE_MANAGER_PORT, RAY_NODE_MANAGER_PORT),
    ("Ray's object manager", RAY_OBJECT_MANAGER_PORT, RAY_OBJECT_MANAGER_PORT),
    ("Ray's runtime environment agent", RAY_RUNTIME_ENV_AGENT_PORT, RAY_RUNTIME_ENV_AGENT_PORT),
    ("Ray's dashboard agent", RAY_DASHBOARD_AGENT_GRPC_PORT, RAY_DASHBOARD_AGENT_GRPC_PORT),
    ("Ray's dashboard agent", RAY_DASHBOARD_AGENT_HTTP_PORT, RAY_DASHBOARD_AGENT_HTTP_PORT),
    ("Ray's metrics", RAY_METRICS_PORT, RAY_METRICS_PORT),
    ("Ray's dashboard metrics", RAY_DASHBOARD_METRICS_PORT, RAY_DASHBOARD_METRICS_PORT),
    ("Ray's workers", *RAY_WORKER_PORTS),
    ("the wrapper's metrics", WRAPPER_METRICS_PORT, WRAPPER_METRICS_PORT),
    ("torch's rendezvous", *RENDEZVOUS_PORTS),
    ("collectives between nodes", *COLLECTIVE_PORTS),
)
"""Ports that no setting moves, so that settings can be checked against them."""

LAST_PORT = 65_535
EPHEMERAL_PORTS = (32_768, 60_999)
"""What Linux hands out when a program asks for any port."""


@dataclass(frozen=True)
class Flow:
    """One service that listens, and who may call it."""

    name: str
    listener: Segment
    ports: tuple[tuple[int, int], ...]  # first and last of each span
    process: str
    purpose: str
    callers: tuple[Segment, ...] = (Segment.LOOPBACK,)
    protocol: str = "Tcp"  # or Udp, or * for both

    @property
    def port_ranges(self) -> tuple[str, ...]:
        """As security rules write them: `8000`, `20000-20999`."""
        return tuple(str(first) if first == last else f"{first}-{last}" for first, last in self.ports)

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine may call it."""
        return self.callers == (Segment.LOOPBACK,)


def row(
    name: str,
    listener: Segment,
    ports: int | tuple[int, int] | tuple[tuple[int, int], ...],
    process: str,
    purpose: str,
    *callers: Segment,
    protocol: str = "Tcp",
) -> Flow:
    """Make a row; a single port and a single span may be written bare, and no caller means this machine only."""
    return Flow(name, listener, _spans(ports), process, purpose, callers or (Segment.LOOPBACK,), protocol)


def _spans(ports: int | tuple[int, int] | tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    match ports:
        case int(port):
            return ((port, port),)
        case (int(first), int(last)):
            return ((first, last),)
        case _:
            return ports  # type: ignore[return-value]


def engines_of_a_node(topology: Topology, gpus: int) -> int:
    """How many engines a node has at most: of a model across nodes one, else one for each GPU."""
    return max(gpus, 1) if topology is Topology.REPLICAS else 1


def engine_ports(first: int, engines: int) -> tuple[int, int]:
    """The first and the last port of a node's engines: each has the next one."""
    return first, first + engines - 1


def node_flows(
    serving: Serving, jupyter: Jupyter, *, engines: int, clients: tuple[Segment, ...], operators: tuple[Segment, ...]
) -> Iterator[Flow]:
    """Everything that listens on a node with so many engines. `clients` call the wrapper, `operators` open shells."""
    ports, nodes = serving.ports, Segment.NODES
    engine, wrapper = "huddle-vllm@.service", "huddleai_api.service"
    yield row("wrapper", nodes, ports.wrapper, wrapper, "OpenAI-compatible API; backend key required", *clients)
    yield row("wrapper-metrics", nodes, WRAPPER_METRICS_PORT, wrapper, "Prometheus metrics")
    yield row("vllm", nodes, engine_ports(ports.vllm, engines), engine, "engines, behind the wrapper")
    yield row("ssh", nodes, SSH_PORT, "ssh.service", "operators", *operators)
    yield from _ray_flows(ports)
    if serving.topology is Topology.REPLICAS:
        purpose = "the engine's own processes among themselves (Gloo takes ephemeral ports)"
        yield row("engine-processes", nodes, EPHEMERAL_PORTS, engine, purpose)
    set_up = "process group set-up (torch binds it to every address)"
    if serving.topology is Topology.DISTRIBUTED:  # of a model across nodes there is one copy
        yield row("torch-rendezvous", nodes, rendezvous_ports(0), engine, set_up, nodes)
    else:
        yield row("torch-rendezvous", nodes, RENDEZVOUS_PORTS, engine, set_up)
    if serving.topology is Topology.DISTRIBUTED:
        between = "NCCL and Gloo between nodes (ephemeral ports)"
        yield row("collectives", nodes, COLLECTIVE_PORTS, engine, between, nodes)
    if jupyter.enabled:
        yield row("jupyterlab", nodes, jupyter.port, "huddle-jupyter.service", "notebooks; token required")


def _ray_flows(ports: Ports) -> Iterator[Flow]:
    nodes, unit = Segment.NODES, "huddle-ray.service"
    yield row("ray-gcs", nodes, ports.ray_gcs, unit, "cluster state; workers join here (token)", nodes)
    yield row("ray-node-manager", nodes, RAY_NODE_MANAGER_PORT, unit, "raylet", nodes)
    yield row("ray-object-manager", nodes, RAY_OBJECT_MANAGER_PORT, unit, "object store", nodes)
    yield row("ray-runtime-env-agent", nodes, RAY_RUNTIME_ENV_AGENT_PORT, unit, "runtime environments", nodes)
    yield row("ray-dashboard-agent-grpc", nodes, RAY_DASHBOARD_AGENT_GRPC_PORT, unit, "agent to head", nodes)
    yield row("ray-metrics", nodes, RAY_METRICS_PORT, unit, "metrics export", nodes)
    yield row("ray-workers", nodes, RAY_WORKER_PORTS, unit, "worker processes", nodes)
    yield row("ray-dashboard-agent-http", nodes, RAY_DASHBOARD_AGENT_HTTP_PORT, unit, "agent's own HTTP")
    yield row("ray-dashboard-metrics", nodes, RAY_DASHBOARD_METRICS_PORT, unit, "the dashboard's own metrics")
    yield row("ray-client", nodes, ports.ray_client, unit, "Ray client server; nodes never join here")
    yield row("ray-dashboard", nodes, ports.ray_dashboard, unit, "dashboard and job API, by tunnel only")
