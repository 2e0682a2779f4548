"""Environment files of a node: its one private address and the ports of the port table, for Ray and for the engine."""

from __future__ import annotations

from huddle import gpus
from plan.model import FleetPlan, NodePlan
from plan.vocabulary import Topology

RAY_JOIN_DEADLINE_S = 600
"""How long a worker waits for its head before systemd starts it again (docs/facts/vllm-and-ray.md#a-lost-head)."""
RAY_OBJECT_STORE_BYTES = 1024**3
"""Ray's default is 30 % of the memory; vLLM passes next to nothing through the object store."""

ENGINE_DRAIN_S = 120
"""How long running requests may go on when the engine is asked to stop."""


def ports_of(plan: FleetPlan) -> dict[str, int]:
    """First port of each flow of the port table, by its name."""
    return {flow.name: flow.ports[0][0] for flow in plan.flows}


def ray(plan: FleetPlan, node: NodePlan) -> dict[str, str]:
    """What `huddle-ray` reads, but interfaces: they are looked up at start (docs/facts/vllm-and-ray.md#interfaces)."""
    ports = ports_of(plan)
    worker_first, worker_last = next(flow.ports[0] for flow in plan.flows if flow.name == "ray-workers")
    return {
        "HUDDLE_ROLE": node.role.value,
        "VLLM_HOST_IP": str(node.address),
        **_without_rdma(node),
        "RAY_HEAD_IP": str(plan.head.address),
        "RAY_GCS_PORT": str(plan.serving.ray_gcs_port),
        "RAY_CLIENT_PORT": str(plan.serving.ray_client_port),
        "RAY_DASHBOARD_PORT": str(plan.serving.ray_dashboard_port),
        "RAY_DASHBOARD_METRICS_PORT": str(ports["ray-dashboard-metrics"]),
        "RAY_NODE_MANAGER_PORT": str(ports["ray-node-manager"]),
        "RAY_OBJECT_MANAGER_PORT": str(ports["ray-object-manager"]),
        "RAY_RUNTIME_ENV_AGENT_PORT": str(ports["ray-runtime-env-agent"]),
        "RAY_DASHBOARD_AGENT_GRPC_PORT": str(ports["ray-dashboard-agent-grpc"]),
        "RAY_DASHBOARD_AGENT_HTTP_PORT": str(ports["ray-dashboard-agent-http"]),
        "RAY_METRICS_PORT": str(ports["ray-metrics"]),
        "RAY_WORKER_PORT_MIN": str(worker_first),
        "RAY_WORKER_PORT_MAX": str(worker_last),
        "RAY_JOIN_DEADLINE_S": str(RAY_JOIN_DEADLINE_S),
        "RAY_OBJECT_STORE_BYTES": str(RAY_OBJECT_STORE_BYTES),
    }


def engine(plan: FleetPlan, node: NodePlan) -> dict[str, str]:
    """The words for `huddle launch`, which sets NCCL's and Gloo's variables itself from the node's address.

    An engine of one node gets none: its processes then meet on loopback. (With an address, Gloo opened a dozen ports on
    it, where other nodes can reach them; seen with vLLM 0.32.0.)
    """
    distributed = plan.serving.topology is Topology.DISTRIBUTED
    workspace = f"{plan.paths.workspace}/workspace"
    words = [
        node.model,
        "--registry /opt/huddle/current/registry/models.yaml",
        f"--store {workspace}/models --workspace {workspace}",
        "--vllm /opt/huddle/current/venv/bin/vllm",
        f"--port {plan.serving.vllm_port} --fabric {node.hardware.fabric}",
        f"--shutdown-timeout {ENGINE_DRAIN_S}",
    ]
    layout = plan.serving.engine(node.model)
    if layout:
        words.append(f"--tp {layout.tensor_parallel} --pp {layout.pipeline_parallel}")
    if node.hardware.on_cpu:
        words.append("--device cpu")
    if distributed:
        words.append(f"--node-ip {node.address} --executor ray --nodes {len(plan.nodes)} --head {plan.head.address}")
    return {"HUDDLE_LAUNCH_WORDS": " ".join(words)}


def file(variables: dict[str, str]) -> bytes:
    """As systemd's EnvironmentFile= reads it."""
    return "".join(f"{name}={value}\n" for name, value in variables.items()).encode()


def _without_rdma(node: NodePlan) -> dict[str, str]:
    """NCCL would try InfiniBand devices that lead to no other node."""
    return {} if gpus.fabric(node.hardware.fabric).rdma else {"NCCL_IB_DISABLE": "1"}
