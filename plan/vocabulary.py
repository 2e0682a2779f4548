"""The words that stack files, plan and components share. Values are what users write or what Azure expects."""

from __future__ import annotations

from enum import UNIQUE, StrEnum, verify


@verify(UNIQUE)
class Environment(StrEnum):
    """What the stack is for. `prod` protects data and gateway from deletion; `dev` destroys cleanly."""

    DEV = "dev"
    TEST = "test"
    PROD = "prod"


@verify(UNIQUE)
class Priority(StrEnum):
    """Azure VM priority; only settable at creation."""

    REGULAR = "regular"
    SPOT = "spot"


@verify(UNIQUE)
class ImageSecurity(StrEnum):
    """The VM's security type that the image takes; only settable at creation (docs/facts/azure.md#trusted-launch)."""

    TRUSTED_LAUNCH = "trusted-launch"
    STANDARD = "standard"


@verify(UNIQUE)
class ModelStoreKind(StrEnum):
    """How model files are shared between nodes."""

    SHARED_DISK = "shared-disk"
    AZURE_FILES = "azure-files"


@verify(UNIQUE)
class DiskSku(StrEnum):
    """Managed disk SKUs that may be shared between VMs (docs/facts/azure.md#shared-disks)."""

    PREMIUM = "Premium_LRS"
    PREMIUM_ZRS = "Premium_ZRS"
    PREMIUM_V2 = "PremiumV2_LRS"
    STANDARD_SSD = "StandardSSD_LRS"
    STANDARD_SSD_ZRS = "StandardSSD_ZRS"
    ULTRA = "UltraSSD_LRS"


@verify(UNIQUE)
class Topology(StrEnum):
    """One whole model per node, or one model across all nodes."""

    REPLICAS = "replicas"
    DISTRIBUTED = "distributed"


@verify(UNIQUE)
class GatewayTier(StrEnum):
    """API Management tiers that can reach private nodes and stream (docs/facts/api-management.md#tiers)."""

    DEVELOPER = "Developer"
    PREMIUM = "Premium"
    STANDARD_V2 = "StandardV2"
    PREMIUM_V2 = "PremiumV2"


@verify(UNIQUE)
class GatewayInbound(StrEnum):
    """How clients reach the gateway: its public name, a private endpoint, or an address inside the VNet."""

    PUBLIC = "public"
    PRIVATE_ENDPOINT = "private-endpoint"
    INTERNAL = "internal"


@verify(UNIQUE)
class PublicAccess(StrEnum):
    """The public endpoint; never `disabled` at first (docs/facts/api-management.md#inbound-private-endpoint)."""

    ENABLED = "enabled"
    DISABLED = "disabled"


@verify(UNIQUE)
class Affinity(StrEnum):
    """Whether requests that share a prompt's beginning go to the same node, whose prefix cache then knows it."""

    NONE = "none"
    PRODUCT = "product"


@verify(UNIQUE)
class QuotaPeriod(StrEnum):
    """After how long a token quota starts again: the words of the `llm-token-limit` policy, in lower case.

    Every tier that this program offers takes all of them (Microsoft's page on the policy, "Applies to").
    """

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    YEARLY = "yearly"


@verify(UNIQUE)
class KeyName(StrEnum):
    """A subscription has two keys, so that one can be changed while the other is in use."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@verify(UNIQUE)
class PrivateDnsOwner(StrEnum):
    """Who writes the names of private endpoints: this program's zones, or the organisation's Azure Policy."""

    OWN = "own"
    POLICY = "policy"


@verify(UNIQUE)
class BastionSku(StrEnum):
    """Azure Bastion SKUs; only Standard and Premium can tunnel from a native client."""

    NONE = "none"
    DEVELOPER = "Developer"
    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def needs_subnet(self) -> bool:
        """Whether it lives in a subnet of ours (the Developer SKU does not; docs/facts/azure.md#bastion)."""
        return self not in (BastionSku.NONE, BastionSku.DEVELOPER)

    @property
    def can_tunnel(self) -> bool:
        """Whether a native client can tunnel through it."""
        return self in (BastionSku.STANDARD, BastionSku.PREMIUM)


@verify(UNIQUE)
class ManagedTag(StrEnum):
    """Tags that this program sets on every resource, so that what a stack left behind can be found."""

    PROJECT = "project"
    STACK = "stack"
    ENVIRONMENT = "environment"


@verify(UNIQUE)
class Delivery(StrEnum):
    """How the bundle reaches a node."""

    RUN_COMMAND = "run-command"
    SSH = "ssh"


@verify(UNIQUE)
class Role(StrEnum):
    """A node's part in the Ray cluster."""

    HEAD = "head"
    WORKER = "worker"


@verify(UNIQUE)
class Segment(StrEnum):
    """A part of the network that listens or calls: this machine, a subnet, or a service tag as NSG rules say.

    The shared Bastion of the Developer SKU has an address of Azure's in place of a tag (docs/facts/azure.md#bastion).
    """

    LOOPBACK = "loopback"
    NODES = "nodes"
    GATEWAY = "gateway"
    ENDPOINTS = "endpoints"
    BASTION = "bastion"
    SHARED_BASTION = "168.63.129.16"
    INTERNET = "Internet"
    VIRTUAL_NETWORK = "VirtualNetwork"
    API_MANAGEMENT = "ApiManagement"
    LOAD_BALANCER = "AzureLoadBalancer"
    GATEWAY_MANAGER = "GatewayManager"
    STORAGE = "Storage"
    SQL = "Sql"
    KEY_VAULT = "AzureKeyVault"
    MONITOR = "AzureMonitor"
    AZURE_CLOUD = "AzureCloud"


SUBNETS: tuple[Segment, ...] = (Segment.NODES, Segment.GATEWAY, Segment.ENDPOINTS, Segment.BASTION)
"""The segments that are subnets of ours, in the order in which they appear in the VNet body."""

SERVICE_USER = "huddle"
"""The system user that services run as on every node; day 0 makes it."""
