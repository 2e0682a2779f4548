"""The port table as rules of Azure's network security groups, each with a priority of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import UNIQUE, IntEnum, verify
from types import MappingProxyType

from plan.ports import Flow
from plan.vocabulary import SUBNETS, Segment


@verify(UNIQUE)
class NsgPriority(IntEnum):
    """Every NSG rule's priority, unique over the whole program so that no two rules can ever share one.

    Bands: 1000 node services, 1500 gateway platform, 2000 Bastion platform, 2500 endpoints, 4096 the explicit deny.
    """

    WRAPPER_FROM_GATEWAY = 1000
    SSH_FROM_BASTION = 1010
    SSH_FROM_SHARED_BASTION = 1015
    SSH_FROM_NETWORK = 1020
    RAY_GCS = 1100
    RAY_NODE_MANAGER = 1110
    RAY_OBJECT_MANAGER = 1120
    RAY_RUNTIME_ENV_AGENT = 1130
    RAY_DASHBOARD_AGENT_GRPC = 1140
    RAY_METRICS = 1160
    RAY_WORKERS = 1170
    TORCH_RENDEZVOUS = 1200
    COLLECTIVES = 1210
    GATEWAY_CLIENTS = 1500
    GATEWAY_MANAGEMENT = 1510
    GATEWAY_LOAD_BALANCER = 1520
    GATEWAY_PRIVATE_CLIENTS = 1530
    GATEWAY_TO_STORAGE = 1540
    GATEWAY_TO_SQL = 1550
    GATEWAY_TO_KEY_VAULT = 1560
    GATEWAY_TO_MONITOR = 1570
    GATEWAY_TO_CERTIFICATES = 1580
    GATEWAY_COUNTERS = 1590
    GATEWAY_CACHE = 1600
    BASTION_CLIENTS = 2000
    BASTION_CONTROL_PLANE = 2010
    BASTION_LOAD_BALANCER = 2020
    BASTION_DATA_PLANE_IN = 2030
    BASTION_TO_NODES = 2040
    BASTION_TO_AZURE = 2050
    BASTION_DATA_PLANE_OUT = 2060
    BASTION_TO_CERTIFICATES = 2070
    ENDPOINTS_HTTPS = 2500
    ENDPOINTS_NFS = 2510
    DENY_ALL_INBOUND = 4096


PRIORITIES: Mapping[tuple[str, Segment], NsgPriority] = MappingProxyType(
    {
        ("wrapper", Segment.GATEWAY): NsgPriority.WRAPPER_FROM_GATEWAY,
        ("ssh", Segment.BASTION): NsgPriority.SSH_FROM_BASTION,
        ("ssh", Segment.SHARED_BASTION): NsgPriority.SSH_FROM_SHARED_BASTION,
        ("ssh", Segment.VIRTUAL_NETWORK): NsgPriority.SSH_FROM_NETWORK,
        ("ray-gcs", Segment.NODES): NsgPriority.RAY_GCS,
        ("ray-node-manager", Segment.NODES): NsgPriority.RAY_NODE_MANAGER,
        ("ray-object-manager", Segment.NODES): NsgPriority.RAY_OBJECT_MANAGER,
        ("ray-runtime-env-agent", Segment.NODES): NsgPriority.RAY_RUNTIME_ENV_AGENT,
        ("ray-dashboard-agent-grpc", Segment.NODES): NsgPriority.RAY_DASHBOARD_AGENT_GRPC,
        ("ray-metrics", Segment.NODES): NsgPriority.RAY_METRICS,
        ("ray-workers", Segment.NODES): NsgPriority.RAY_WORKERS,
        ("torch-rendezvous", Segment.NODES): NsgPriority.TORCH_RENDEZVOUS,
        ("collectives", Segment.NODES): NsgPriority.COLLECTIVES,
        ("gateway-clients", Segment.INTERNET): NsgPriority.GATEWAY_CLIENTS,
        ("gateway-clients", Segment.VIRTUAL_NETWORK): NsgPriority.GATEWAY_PRIVATE_CLIENTS,
        ("gateway-management", Segment.API_MANAGEMENT): NsgPriority.GATEWAY_MANAGEMENT,
        ("gateway-probe", Segment.LOAD_BALANCER): NsgPriority.GATEWAY_LOAD_BALANCER,
        ("gateway-counters", Segment.GATEWAY): NsgPriority.GATEWAY_COUNTERS,
        ("gateway-cache", Segment.GATEWAY): NsgPriority.GATEWAY_CACHE,
        ("storage", Segment.GATEWAY): NsgPriority.GATEWAY_TO_STORAGE,
        ("sql", Segment.GATEWAY): NsgPriority.GATEWAY_TO_SQL,
        ("key-vault", Segment.GATEWAY): NsgPriority.GATEWAY_TO_KEY_VAULT,
        ("monitor", Segment.GATEWAY): NsgPriority.GATEWAY_TO_MONITOR,
        ("certificates", Segment.GATEWAY): NsgPriority.GATEWAY_TO_CERTIFICATES,
        ("bastion-clients", Segment.INTERNET): NsgPriority.BASTION_CLIENTS,
        ("bastion-control-plane", Segment.GATEWAY_MANAGER): NsgPriority.BASTION_CONTROL_PLANE,
        ("bastion-probe", Segment.LOAD_BALANCER): NsgPriority.BASTION_LOAD_BALANCER,
        ("bastion-data-plane", Segment.VIRTUAL_NETWORK): NsgPriority.BASTION_DATA_PLANE_IN,
        ("remote-shells", Segment.BASTION): NsgPriority.BASTION_TO_NODES,
        ("bastion-peers", Segment.BASTION): NsgPriority.BASTION_DATA_PLANE_OUT,
        ("azure", Segment.BASTION): NsgPriority.BASTION_TO_AZURE,
        ("session-information", Segment.BASTION): NsgPriority.BASTION_TO_CERTIFICATES,
        ("private-endpoints", Segment.VIRTUAL_NETWORK): NsgPriority.ENDPOINTS_HTTPS,
        ("nfs", Segment.NODES): NsgPriority.ENDPOINTS_NFS,
    }
)
"""Each allowed call of the port table, by flow and caller: a call without a priority here is an error."""


_BETWEEN_BASTIONS_HOSTS = frozenset({"bastion-data-plane", "bastion-peers"})


@dataclass(frozen=True)
class NsgRule:
    """One security rule, ready to be written into an NSG body."""

    name: str
    priority: NsgPriority
    direction: str
    access: str
    protocol: str
    source: Segment | None  # None: anybody
    destination: Segment | None
    ports: tuple[str, ...]
    description: str


def nsg_rules(subnet: Segment, table: tuple[Flow, ...]) -> tuple[NsgRule, ...]:
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


def _inbound(subnet: Segment, table: tuple[Flow, ...]) -> Iterator[NsgRule]:
    for flow in table:
        if flow.listener is subnet and not flow.loopback_only:
            for caller in flow.callers:
                yield _allow(flow, PRIORITIES[flow.name, caller], "Inbound", subnet, caller)


def _outbound(subnet: Segment, table: tuple[Flow, ...]) -> Iterator[NsgRule]:
    """Stated for Azure services only; within the VNet the listener's NSG decides."""
    for flow in table:
        if flow.listener not in SUBNETS and subnet in flow.callers:
            yield _allow(flow, PRIORITIES[flow.name, subnet], "Outbound", subnet, flow.listener)


def _own_side(subnet: Segment, flow: Flow) -> Segment | None:
    """How a rule names the subnet that it is for: by its range, but Bastion's as Azure documents and checks them."""
    if subnet is not Segment.BASTION:
        return subnet
    return Segment.VIRTUAL_NETWORK if flow.name in _BETWEEN_BASTIONS_HOSTS else None


def _allow(flow: Flow, priority: NsgPriority, direction: str, subnet: Segment, other: Segment) -> NsgRule:
    own, inbound = _own_side(subnet, flow), direction == "Inbound"
    return NsgRule(
        name=f"allow-{flow.name}-{'from' if inbound else 'to'}-{_slug(other)}",
        priority=priority,
        direction=direction,
        access="Allow",
        protocol=flow.protocol,
        source=other if inbound else own,
        destination=own if inbound else other,
        ports=flow.port_ranges,
        description=f"{flow.process}: {flow.purpose}"[:140],
    )


def _slug(segment: Segment) -> str:
    return "".join(
        f"-{char.lower()}" if char.isupper() and index else char.lower() for index, char in enumerate(segment)
    )
