"""What listens in a stack on Azure beside the nodes: the gateway, private endpoints, Bastion, and Azure's services."""

from __future__ import annotations

from collections.abc import Iterator

from plan.azure_facts import GATEWAY_TIERS
from plan.ports import Flow, row
from plan.settings.azure import AzureSettings
from plan.vocabulary import GatewayInbound, GatewayTier, ModelStoreKind, Segment


def platform_flows(settings: AzureSettings) -> Iterator[Flow]:
    """Every listener that is no node's, in a stable order."""
    if not settings.gateway.existing:  # an existing gateway's own flows are its owner's task
        yield from _gateway_flows(settings.gateway.tier, settings.gateway.inbound, settings.gateway.units)
    purpose = "Key Vault, gateway, storage over private addresses"
    endpoints = Segment.ENDPOINTS
    yield row("private-endpoints", endpoints, 443, "private endpoints", purpose, Segment.VIRTUAL_NETWORK)
    if settings.model_store.kind is ModelStoreKind.AZURE_FILES:
        yield row("nfs", endpoints, 2049, "Azure Files", "model files (NFS 4.1)", Segment.NODES)
    if settings.access.bastion.sku.needs_subnet:
        yield from _bastion_flows()


def _gateway_flows(tier: GatewayTier, inbound: GatewayInbound, units: int) -> Iterator[Flow]:
    """What API Management needs: docs/facts/api-management.md#classic-injection; v2 needs storage only."""
    gateway, platform, facts = Segment.GATEWAY, "API Management", GATEWAY_TIERS[tier]
    if inbound in facts.injected:
        clients = Segment.INTERNET if inbound is GatewayInbound.PUBLIC else Segment.VIRTUAL_NETWORK
        yield row("gateway-clients", gateway, 443, platform, "application developers", clients)
    if facts.classic:
        yield row("gateway-management", gateway, 3443, platform, "control plane", Segment.API_MANAGEMENT)
        yield row("gateway-probe", gateway, 6390, platform, "load balancer probe", Segment.LOAD_BALANCER)
        yield row("sql", Segment.SQL, 1433, "Azure SQL", "gateway state", gateway)
        yield row("key-vault", Segment.KEY_VAULT, 443, "Azure Key Vault", "the platform's own certificates", gateway)
        validation = "certificate validation"
        yield row("certificates", Segment.INTERNET, 80, "certificate authorities", validation, gateway)
    if facts.classic and units > 1:  # apart, each unit would grant every limit by itself
        counted = "limits that units count together"
        yield row("gateway-counters", gateway, 4290, platform, counted, gateway, protocol="Udp")
        yield row("gateway-cache", gateway, (6380, 6383), platform, "cache that units share", gateway)
    yield row("storage", Segment.STORAGE, 443, "Azure Storage", "gateway state", gateway)
    monitor_ports = ((443, 443), (1886, 1886))
    yield row("monitor", Segment.MONITOR, monitor_ports, "Azure Monitor", "logs and metrics", gateway)


def _bastion_flows() -> Iterator[Flow]:
    """The eight rules that Azure looks for on Bastion's subnet, word for word (docs/facts/azure.md#bastion)."""
    bastion, platform, inside = Segment.BASTION, "Azure Bastion", Segment.VIRTUAL_NETWORK
    data_plane, between = ((8080, 8080), (5701, 5701)), "between its own hosts"
    yield row("bastion-clients", bastion, 443, platform, "operators, signed in with Entra", Segment.INTERNET)
    yield row("bastion-control-plane", bastion, 443, platform, "control plane", Segment.GATEWAY_MANAGER)
    yield row("bastion-probe", bastion, 443, platform, "load balancer probe", Segment.LOAD_BALANCER)
    yield row("bastion-data-plane", bastion, data_plane, platform, between, inside, protocol="*")
    shells = ((22, 22), (3389, 3389))
    yield row("remote-shells", inside, shells, "ssh.service", "operators' sessions", bastion, protocol="*")
    yield row("bastion-peers", inside, data_plane, platform, between, bastion, protocol="*")
    yield row("azure", Segment.AZURE_CLOUD, 443, "Azure", "diagnostics and control plane", bastion)
    authorities = "certificate authorities"
    yield row("session-information", Segment.INTERNET, 80, authorities, "certificate validation", bastion, protocol="*")
