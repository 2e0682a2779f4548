"""The plan of a stack on Azure: the fleet, and what only Azure knows. Frozen data, no decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from plan.azure.gateway_model import GatewayPlan
from plan.azure.names import Names
from plan.azure.security_rules import NsgRule
from plan.azure_facts import VmSize, quota_name
from plan.azure_network import AddressPlan, PrivateLink
from plan.model import FleetPlan, Login, StorePlan
from plan.ports import Flow
from plan.settings.azure import AutoShutdown, Image, Monitoring
from plan.vocabulary import BastionSku, Delivery, DiskSku, Priority, PrivateDnsOwner, Segment


@dataclass(frozen=True)
class ComputePlan:
    """What all GPU VMs have in common. `ultra_disk`: whether they must be able to attach an Ultra disk."""

    size: VmSize
    quota_vcpus: int
    image: Image
    zone: str | None
    priority: Priority
    os_disk_gib: int
    admin_username: str
    ssh_public_keys: tuple[str, ...]
    auto_shutdown: AutoShutdown
    ultra_disk: bool

    @property
    def quota_name(self) -> str:
        """The vCPU quota that the VMs count against."""
        return quota_name(self.size, self.priority)

    @property
    def login(self) -> Login:
        """The operators' account on every node: user name and public keys."""
        return Login(self.admin_username, self.ssh_public_keys)


@dataclass(frozen=True)
class ModelStorePlan(StorePlan):
    """The disk or share behind the store, with what it costs and can do."""

    size_gib: int
    sku: DiskSku
    iops: int | None
    mbps: int | None
    max_shares: int


@dataclass(frozen=True)
class AccessPlan:
    """How operators and deliveries reach the nodes and the vault."""

    bastion_sku: BastionSku
    tunnel: bool
    delivery: Delivery
    operator_object_ids: tuple[str, ...]


@dataclass(frozen=True)
class NetworkPlan:
    """The VNet that is there already, if any; the services with a private endpoint; who writes their names.

    `existing_zones` holds the ARM ids of private DNS zones that the VNet has already.
    """

    private_links: tuple[PrivateLink, ...]
    existing_vnet: str | None = None
    private_dns: PrivateDnsOwner = PrivateDnsOwner.OWN
    existing_zones: Mapping[PrivateLink, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def private_zones(self) -> tuple[PrivateLink, ...]:
        """The private DNS zones that this program makes: none where the organisation's policy writes the names."""
        if self.private_dns is PrivateDnsOwner.POLICY:
            return ()
        return tuple(link for link in self.private_links if link not in self.existing_zones)


@dataclass(frozen=True, kw_only=True)
class AzurePlan(FleetPlan):
    """One stack on Azure, completely. `platform_flows` are the listeners that are no node's."""

    location: str
    tags: Mapping[str, str]
    names: Names
    addresses: AddressPlan
    platform_flows: tuple[Flow, ...]
    security_rules: Mapping[Segment, tuple[NsgRule, ...]]
    compute: ComputePlan
    store: ModelStorePlan
    gateway: GatewayPlan
    access: AccessPlan
    monitoring: Monitoring
    network: NetworkPlan

    @property
    def port_table(self) -> tuple[Flow, ...]:
        """Everything that listens anywhere in the stack, in a stable order."""
        return (*self.flows, *self.platform_flows)

    @property
    def has_bastion_subnet(self) -> bool:
        """Whether Bastion needs a subnet and an address (the Developer SKU needs neither)."""
        return Segment.BASTION in self.addresses.subnets
