"""One port table: who listens, on what, and who may call. NSG rules and units are both made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from plan.azure_facts import GATEWAY_TIERS
from plan.settings.azure import Settings
from plan.vocabulary import SUBNETS, Delivery, GatewayInbound, GatewayTier, ModelStoreKind, NsgPriority, Topology, Zone

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
TORCH_RENDEZVOUS_PORT = 29_500
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
    ("torch's rendezvous", TORCH_RENDEZVOUS_PORT, TORCH_RENDEZVOUS_PORT),
    ("collectives between nodes", *COLLECTIVE_PORTS),
)
"""Ports that no setting moves, so that settings can be checked against them."""

EPHEMERAL_PORTS = (32_768, 60_999)
"""What Linux hands out when a program asks for any port."""

BOUND_WIDER = frozenset({"ray-client", "ray-dashboard-agent-http", "ray-dashboard-metrics"})
"""Flows for loopback only that Ray binds to the node's address all the same (seen with 2.56.1), whatever it is told.

The first two ask for the cluster's token; the last one shows Ray's own metrics. What keeps other hosts away from all
three is the nodes' security group and, for hosts outside the nodes' subnet, the unit's IPAddressAllow.
"""


@dataclass(frozen=True)
class Flow:
    """One service that listens, and who may call it.

    A flow whose only caller is loopback never becomes an NSG rule. `priorities` holds the NSG priority of the rule
    for each network caller (inbound on the listener's subnet, or outbound on ours when an Azure service listens).
    """

    name: str
    listener: Zone
    ports: tuple[tuple[int, int], ...]  # first and last of each span
    process: str
    purpose: str
    callers: tuple[Zone, ...]
    priorities: Mapping[Zone, NsgPriority]
    protocol: str = "Tcp"

    @property
    def port_ranges(self) -> tuple[str, ...]:
        """As NSG rules write them: `8000`, `20000-20999`."""
        return tuple(str(first) if first == last else f"{first}-{last}" for first, last in self.ports)

    @property
    def loopback_only(self) -> bool:
        """Whether only this machine may call it."""
        return self.callers == (Zone.LOOPBACK,)


@dataclass(frozen=True)
class NsgRule:
    """One security rule, ready to be written into an NSG body."""

    name: str
    priority: NsgPriority
    direction: str
    access: str
    protocol: str
    source: Zone | None  # None: anybody
    destination: Zone | None
    ports: tuple[str, ...]
    description: str


def _flow(  # noqa: PLR0917 - a table row
    name: str,
    listener: Zone,
    ports: int | tuple[int, int] | tuple[tuple[int, int], ...],
    process: str,
    purpose: str,
    callers: Mapping[Zone, NsgPriority] | None = None,
) -> Flow:
    """Make a row; a single port and a single span may be written bare."""
    return Flow(
        name=name,
        listener=listener,
        ports=_spans(ports),
        process=process,
        purpose=purpose,
        callers=tuple(callers) if callers else (Zone.LOOPBACK,),
        priorities=MappingProxyType(dict(callers or {})),
    )


def _spans(ports: int | tuple[int, int] | tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    match ports:
        case int(port):
            return ((port, port),)
        case (int(first), int(last)):
            return ((first, last),)
        case _:
            return ports  # type: ignore[return-value]


def port_table(settings: Settings) -> tuple[Flow, ...]:
    """Everything that listens anywhere in the stack, in a stable order."""
    return (
        *_node_flows(settings),
        # What somebody else's gateway needs is its keeper's business.
        *(() if settings.gateway.existing else _gateway_flows(settings.gateway.tier, settings.gateway.inbound)),
        *_endpoint_flows(settings),
        *(_bastion_flows() if settings.access.bastion.sku.needs_subnet else ()),
    )


def _node_flows(settings: Settings) -> Iterator[Flow]:
    ports = settings.serving.ports
    ssh_callers = {}
    if settings.access.bastion.sku.needs_subnet:
        ssh_callers[Zone.BASTION] = NsgPriority.SSH_FROM_BASTION
    if settings.access.delivery is Delivery.SSH:  # who deploys sits in a peered network or behind a VPN
        ssh_callers[Zone.VIRTUAL_NETWORK] = NsgPriority.SSH_FROM_NETWORK
    nodes = Zone.NODES
    yield _flow(
        "wrapper",
        nodes,
        ports.wrapper,
        "huddleai_api.service",
        "OpenAI-compatible API; backend key required",
        {Zone.GATEWAY: NsgPriority.WRAPPER_FROM_GATEWAY},
    )
    yield _flow("wrapper-metrics", nodes, WRAPPER_METRICS_PORT, "huddleai_api.service", "Prometheus metrics")
    yield _flow("vllm", nodes, ports.vllm, "huddle-vllm.service", "engine, behind the wrapper")
    yield _flow("ssh", nodes, SSH_PORT, "ssh.service", "operators", ssh_callers)
    yield from _ray_flows(settings)
    if settings.serving.topology is Topology.REPLICAS:
        purpose = "the engine's own processes among themselves (Gloo takes ephemeral ports)"
        yield _flow("engine-processes", nodes, EPHEMERAL_PORTS, "huddle-vllm.service", purpose)
    if settings.serving.topology is Topology.DISTRIBUTED:
        yield _flow(
            "torch-rendezvous",
            nodes,
            TORCH_RENDEZVOUS_PORT,
            "huddle-vllm.service",
            "process group set-up across nodes",
            {nodes: NsgPriority.TORCH_RENDEZVOUS},
        )
        yield _flow(
            "collectives",
            nodes,
            COLLECTIVE_PORTS,
            "huddle-vllm.service",
            "NCCL and Gloo between nodes (ephemeral ports)",
            {nodes: NsgPriority.COLLECTIVES},
        )
    if settings.jupyter.enabled:
        yield _flow("jupyterlab", nodes, settings.jupyter.port, "huddle-jupyter.service", "notebooks; token required")


def _ray_flows(settings: Settings) -> Iterator[Flow]:
    ports, nodes, unit = settings.serving.ports, Zone.NODES, "huddle-ray.service"

    def among_nodes(name: str, port: int | tuple[int, int], purpose: str, priority: NsgPriority) -> Flow:
        return _flow(name, nodes, port, unit, purpose, {nodes: priority})

    yield among_nodes("ray-gcs", ports.ray_gcs, "cluster state; workers join here (token)", NsgPriority.RAY_GCS)
    yield among_nodes("ray-node-manager", RAY_NODE_MANAGER_PORT, "raylet", NsgPriority.RAY_NODE_MANAGER)
    yield among_nodes("ray-object-manager", RAY_OBJECT_MANAGER_PORT, "object store", NsgPriority.RAY_OBJECT_MANAGER)
    yield among_nodes(
        "ray-runtime-env-agent", RAY_RUNTIME_ENV_AGENT_PORT, "runtime environments", NsgPriority.RAY_RUNTIME_ENV_AGENT
    )
    yield among_nodes(
        "ray-dashboard-agent-grpc",
        RAY_DASHBOARD_AGENT_GRPC_PORT,
        "agent to head",
        NsgPriority.RAY_DASHBOARD_AGENT_GRPC,
    )
    yield among_nodes("ray-metrics", RAY_METRICS_PORT, "metrics export", NsgPriority.RAY_METRICS)
    yield among_nodes("ray-workers", RAY_WORKER_PORTS, "worker processes", NsgPriority.RAY_WORKERS)
    yield _flow("ray-dashboard-agent-http", nodes, RAY_DASHBOARD_AGENT_HTTP_PORT, unit, "agent's own HTTP")
    yield _flow("ray-dashboard-metrics", nodes, RAY_DASHBOARD_METRICS_PORT, unit, "the dashboard's own metrics")
    yield _flow("ray-client", nodes, ports.ray_client, unit, "Ray client server; nodes never join here")
    yield _flow("ray-dashboard", nodes, ports.ray_dashboard, unit, "dashboard and job API, by tunnel only")


def _gateway_flows(tier: GatewayTier, inbound: GatewayInbound) -> Iterator[Flow]:
    """What API Management needs: docs/facts/api-management.md#classic-injection; v2 needs storage only."""
    gateway, platform = Zone.GATEWAY, "API Management"
    if inbound in GATEWAY_TIERS[tier].injected:
        clients = (
            {Zone.INTERNET: NsgPriority.GATEWAY_CLIENTS}
            if inbound is GatewayInbound.PUBLIC
            else {Zone.VIRTUAL_NETWORK: NsgPriority.GATEWAY_PRIVATE_CLIENTS}
        )
        yield _flow("gateway-clients", gateway, 443, platform, "application developers", clients)
    if tier in (GatewayTier.DEVELOPER, GatewayTier.PREMIUM):
        yield _flow(
            "gateway-management",
            gateway,
            3443,
            platform,
            "control plane",
            {Zone.API_MANAGEMENT: NsgPriority.GATEWAY_MANAGEMENT},
        )
        yield _flow(
            "gateway-probe",
            gateway,
            6390,
            platform,
            "load balancer probe",
            {Zone.LOAD_BALANCER: NsgPriority.GATEWAY_LOAD_BALANCER},
        )
        yield _flow("sql", Zone.SQL, 1433, "Azure SQL", "gateway state", {gateway: NsgPriority.GATEWAY_TO_SQL})
        yield _flow(
            "certificates",
            Zone.INTERNET,
            80,
            "certificate authorities",
            "certificate validation",
            {gateway: NsgPriority.GATEWAY_TO_CERTIFICATES},
        )
    yield _flow(
        "storage", Zone.STORAGE, 443, "Azure Storage", "gateway state", {gateway: NsgPriority.GATEWAY_TO_STORAGE}
    )
    yield _flow(
        "key-vault",
        Zone.KEY_VAULT,
        443,
        "Azure Key Vault",
        "named values",
        {gateway: NsgPriority.GATEWAY_TO_KEY_VAULT},
    )
    monitor_ports = ((443, 443), (1886, 1886))
    yield _flow(
        "monitor",
        Zone.MONITOR,
        monitor_ports,
        "Azure Monitor",
        "logs and metrics",
        {gateway: NsgPriority.GATEWAY_TO_MONITOR},
    )


def _endpoint_flows(settings: Settings) -> Iterator[Flow]:
    yield _flow(
        "private-endpoints",
        Zone.ENDPOINTS,
        443,
        "private endpoints",
        "Key Vault, gateway, storage over private addresses",
        {Zone.VIRTUAL_NETWORK: NsgPriority.ENDPOINTS_HTTPS},
    )
    if settings.model_store.kind is ModelStoreKind.AZURE_FILES:
        yield _flow(
            "nfs",
            Zone.ENDPOINTS,
            2049,
            "Azure Files",
            "model files (NFS 4.1)",
            {Zone.NODES: NsgPriority.ENDPOINTS_NFS},
        )


def _bastion_flows() -> Iterator[Flow]:
    """What Azure Bastion requires of an NSG on its subnet (Microsoft's Bastion NSG page)."""
    bastion, platform = Zone.BASTION, "Azure Bastion"
    data_plane = ((5701, 5701), (8080, 8080))
    clients = {Zone.INTERNET: NsgPriority.BASTION_CLIENTS}
    control = {Zone.GATEWAY_MANAGER: NsgPriority.BASTION_CONTROL_PLANE}
    probe = {Zone.LOAD_BALANCER: NsgPriority.BASTION_LOAD_BALANCER}
    yield _flow("bastion-clients", bastion, 443, platform, "operators, signed in with Entra", clients)
    yield _flow("bastion-control-plane", bastion, 443, platform, "control plane", control)
    yield _flow("bastion-probe", bastion, 443, platform, "load balancer probe", probe)
    inside = {Zone.VIRTUAL_NETWORK: NsgPriority.BASTION_DATA_PLANE_IN}
    yield _flow("bastion-data-plane", bastion, data_plane, platform, "between its own hosts", inside)
    for name, listener, ports, process, purpose, priority in (
        (
            "remote-shells",
            Zone.VIRTUAL_NETWORK,
            ((22, 22), (3389, 3389)),
            "ssh.service",
            "operators' sessions",
            NsgPriority.BASTION_TO_NODES,
        ),
        (
            "bastion-peers",
            Zone.VIRTUAL_NETWORK,
            data_plane,
            platform,
            "between its own hosts",
            NsgPriority.BASTION_DATA_PLANE_OUT,
        ),
        (
            "azure",
            Zone.AZURE_CLOUD,
            ((443, 443),),
            "Azure",
            "diagnostics and control plane",
            NsgPriority.BASTION_TO_AZURE,
        ),
        (
            "session-information",
            Zone.INTERNET,
            ((80, 80),),
            "certificate authorities",
            "certificate validation",
            NsgPriority.BASTION_TO_CERTIFICATES,
        ),
    ):
        yield _flow(name, listener, ports, process, purpose, {bastion: priority})


def nsg_rules(subnet: Zone, table: tuple[Flow, ...]) -> tuple[NsgRule, ...]:
    """The rules of one subnet's NSG, by priority; the last one denies everything else that comes in."""
    allowed = [*_inbound(subnet, table), *_outbound(subnet, table)]
    deny = NsgRule(
        name="deny-all-inbound",
        priority=NsgPriority.DENY_ALL_INBOUND,
        direction="Inbound",
        access="Deny",
        protocol="*",
        source=None,
        destination=None,
        ports=("*",),
        description="Everything that the port table does not allow",
    )
    return (*sorted(allowed, key=lambda rule: rule.priority), deny)


def _inbound(subnet: Zone, table: tuple[Flow, ...]) -> Iterator[NsgRule]:
    for flow in table:
        if flow.listener is subnet and not flow.loopback_only:
            for caller in flow.callers:
                yield _allow(flow, flow.priorities[caller], "Inbound", caller, subnet)


def _outbound(subnet: Zone, table: tuple[Flow, ...]) -> Iterator[NsgRule]:
    """Stated for Azure services only; within the VNet the listener's NSG decides."""
    for flow in table:
        if flow.listener not in SUBNETS and subnet in flow.callers:
            yield _allow(flow, flow.priorities[subnet], "Outbound", subnet, flow.listener)


def _allow(flow: Flow, priority: NsgPriority, direction: str, source: Zone, destination: Zone) -> NsgRule:
    other = source if direction == "Inbound" else destination
    preposition = "from" if direction == "Inbound" else "to"
    return NsgRule(
        name=f"allow-{flow.name}-{preposition}-{_slug(other)}",
        priority=priority,
        direction=direction,
        access="Allow",
        protocol=flow.protocol,
        source=source,
        destination=destination,
        ports=flow.port_ranges,
        description=f"{flow.process}: {flow.purpose}"[:140],
    )


def _slug(zone: Zone) -> str:
    return "".join(f"-{char.lower()}" if char.isupper() and index else char.lower() for index, char in enumerate(zone))
