"""Facts about what Azure sells: VM sizes, shared disks, gateway tiers. Data with its source; no decisions.

Sources: docs/facts/azure.md#vm-sizes, docs/facts/azure.md#shared-disks,
docs/facts/api-management.md#tiers. Prices: infra/reports/data/prices.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from plan.vocabulary import DiskSku, GatewayInbound, GatewayTier, Priority


@dataclass(frozen=True)
class VmSize:
    """A VM size. `vram_mib` is per GPU, as nvidia-smi reports it; `local_nvme_gib` sums its NVMe disks.

    Without GPUs, its engine computes in the machine's `memory_gib`.
    """

    name: str
    vcpus: int
    gpus: int
    gpu: str  # a key of huddle's GPU facts
    vram_mib: int
    local_nvme_gib: int
    max_data_disks: int
    nic_gbps: int
    rdma: bool
    quota_family: str
    memory_gib: int
    accelerated_networking: bool = True

    @property
    def fabric(self) -> str:
        """What models that span nodes may count on, by its name in huddle's GPU facts.

        TCP even where the size lists InfiniBand: Azure configures that between VMs of one scale set only, not between
        standalone VMs (docs/facts/azure.md#infiniband).
        """
        return f"tcp-{self.nic_gbps}g"


_NVL_MIB = 95_830  # docs/facts/gpus.md#memory-of-a-card
_SXM_MIB = 81_559  # docs/facts/gpus.md#memory-of-a-card
_H200_MIB = 143_771  # docs/facts/gpus.md#memory-of-a-card

CPU = "cpu"
"""In the place of a GPU's name, for a size without one: what `huddle launch` calls the device."""

_NC_QUOTA = "StandardNCadsH100v5Family"
_ND_H100_QUOTA, _ND_H200_QUOTA = "standardNDSH100v5Family", "standardNDISRH200V5Family"

# fmt: off
_SIZES = (  # vCPUs, GPUs, their name, VRAM, NVMe in GiB, most data disks, NIC in Gbit/s, RDMA, quota family, memory
    VmSize("Standard_NC40ads_H100_v5", 40, 1, "h100-nvl", _NVL_MIB, 3576, 8, 40, False, _NC_QUOTA, 320),
    VmSize("Standard_NC80adis_H100_v5", 80, 2, "h100-nvl", _NVL_MIB, 7152, 16, 80, False, _NC_QUOTA, 640),
    VmSize("Standard_ND96isr_H100_v5", 96, 8, "h100-sxm", _SXM_MIB, 28610, 32, 80, True, _ND_H100_QUOTA, 1900),
    VmSize("Standard_ND96isr_H200_v5", 96, 8, "h200-sxm", _H200_MIB, 28610, 16, 80, True, _ND_H200_QUOTA, 1850),
    # Its NIC has 12.5 Gb/s; its disks are those of NC H100 v5 in small: SCSI, a resource disk, raw NVMe.
    VmSize("Standard_L8s_v3", 8, 0, CPU, 0, 1788, 16, 10, False, "standardLSv3Family", 64),
)
# fmt: on

VM_SIZES: Mapping[str, VmSize] = MappingProxyType({size.name: size for size in _SIZES})
"""Sizes by name. NCC40ads (confidential GPU) is left out: own onboarding, no accelerated NIC.
The one without GPUs is for proofs (docs/decisions/0019): the cheapest way through all of Azure that a node needs.
"""


SPOT_QUOTA = "lowPriorityCores"
"""The quota that spot VMs of every size count against (docs/facts/azure.md#quota-families)."""


def quota_name(size: VmSize, priority: Priority) -> str:
    """The vCPU quota that a VM counts against, beside the region's own."""
    return SPOT_QUOTA if priority is Priority.SPOT else size.quota_family


# fmt: off
DISALLOWED_ADMIN_NAMES = frozenset((
    "1", "123", "a", "actuser", "adm", "admin", "admin1", "admin2", "administrator", "aspnet", "backup", "console",
    "david", "guest", "john", "owner", "root", "server", "sql", "support", "support_388945a0", "sys", "test", "test1",
    "test2", "test3", "user", "user1", "user2", "user3", "user4", "user5",
))
# fmt: on
"""Login names that ARM refuses (OSProfile.adminUsername in the compute API's own description)."""

SYSTEM_USERS = frozenset(
    (
        "bin",
        "daemon",
        "games",
        "gnats",
        "irc",
        "list",
        "lp",
        "mail",
        "man",
        "messagebus",
        "news",
        "nobody",
        "proxy",
        "sshd",
        "sync",
        "syslog",
        "tss",
        "uucp",
        "www-data",
    )
)
"""Users that an Ubuntu image has already (Debian's base-passwd, and the services of Ubuntu's server image)."""
SYSTEM_USER_PREFIXES = ("systemd-", "_")
"""How names of services' own users begin (systemd and Debian's policy on dynamic users)."""

RESERVED_TAG_PREFIXES = ("azure", "microsoft", "windows")
"""Tag names that begin like this belong to Azure (Microsoft's Tags API reference)."""


@dataclass(frozen=True)
class SharedDiskFacts:
    """What a managed disk SKU allows when several VMs attach it."""

    zonal_only: bool
    own_performance: bool  # IOPS and MB/s are provisioned by the user, not by size
    max_size_gib: int
    max_iops: int = 0  # all three only where performance is the user's
    max_mbps: int = 0
    iops_per_gib: int = 0

    def most_iops(self, size_gib: int) -> int:
        """What may be provisioned for a disk of this size (docs/facts/azure.md#disk-performance)."""
        return min(self.max_iops, size_gib * self.iops_per_gib)


_SIZED = SharedDiskFacts(zonal_only=False, own_performance=False, max_size_gib=32_767)
_PROVISIONED = SharedDiskFacts(
    zonal_only=True, own_performance=True, max_size_gib=65_536, max_iops=80_000, max_mbps=2_000, iops_per_gib=500
)

SHARED_DISKS: Mapping[DiskSku, SharedDiskFacts] = MappingProxyType(
    {
        DiskSku.PREMIUM: _SIZED,
        DiskSku.PREMIUM_ZRS: _SIZED,
        DiskSku.PREMIUM_V2: _PROVISIONED,
        DiskSku.STANDARD_SSD: _SIZED,
        DiskSku.STANDARD_SSD_ZRS: _SIZED,
        DiskSku.ULTRA: replace(_PROVISIONED, max_iops=400_000, max_mbps=10_000, iops_per_gib=1_000),
    }
)


def max_shares(sku: DiskSku, size_gib: int) -> int:
    """How many VMs may attach one disk at once (docs/facts/azure.md#shared-disks)."""
    if sku in (DiskSku.PREMIUM_V2, DiskSku.ULTRA):
        return 15
    if size_gib <= 512:
        return 3
    return 5 if size_gib <= 4096 else 10


PREMIUM_V2_BASELINE_IOPS = 3_000
PREMIUM_V2_BASELINE_MBPS = 125
PREMIUM_V2_MBPS_PER_IOPS = 0.25


@dataclass(frozen=True)
class TierFacts:
    """What an API Management tier needs from the network and offers to clients (docs/facts/api-management.md#tiers)."""

    tier: GatewayTier
    delegation: Mapping[GatewayInbound, str | None]  # the subnet's, for each way in that the tier has
    min_prefix: int  # the smallest subnet, as a prefix length
    injected: tuple[GatewayInbound, ...]  # ways in for which the gateway sits inside the VNet
    max_units: int
    classic: bool  # runs on VMs of its own in the VNet, unlike the v2 tiers
    create_timeout: str  # Pulumi duration; classic tiers take tens of minutes

    @property
    def inbound(self) -> tuple[GatewayInbound, ...]:
        """The ways in that the tier has."""
        return tuple(self.delegation)


_SERVER_FARMS = "Microsoft.Web/serverFarms"
_HOSTING_ENVIRONMENTS = "Microsoft.Web/hostingEnvironments"
_PUBLIC, _ENDPOINT, _INTERNAL = GatewayInbound.PUBLIC, GatewayInbound.PRIVATE_ENDPOINT, GatewayInbound.INTERNAL
_DEVELOPER = TierFacts(
    tier=GatewayTier.DEVELOPER,
    delegation={_PUBLIC: None, _INTERNAL: None},
    min_prefix=29,
    injected=(_PUBLIC, _INTERNAL),
    max_units=1,
    classic=True,
    create_timeout="120m",
)
_STANDARD_V2 = TierFacts(
    tier=GatewayTier.STANDARD_V2,
    delegation={_PUBLIC: _SERVER_FARMS, _ENDPOINT: _SERVER_FARMS},
    min_prefix=27,
    injected=(),
    max_units=10,
    classic=False,
    create_timeout="90m",
)
_TIERS = (
    _DEVELOPER,
    replace(_DEVELOPER, tier=GatewayTier.PREMIUM, min_prefix=27, max_units=10),
    _STANDARD_V2,
    replace(
        _STANDARD_V2,
        tier=GatewayTier.PREMIUM_V2,
        delegation={**_STANDARD_V2.delegation, _INTERNAL: _HOSTING_ENVIRONMENTS},
        injected=(_INTERNAL,),
        max_units=30,
    ),
)

GATEWAY_TIERS: Mapping[GatewayTier, TierFacts] = MappingProxyType({facts.tier: facts for facts in _TIERS})

REFUSED_TIERS: Mapping[str, str] = MappingProxyType(
    {
        "Consumption": "it cuts long-lived responses, so nothing can stream, and it cannot reach private nodes",
        "Basic": "it has no network integration, so it cannot reach private nodes",
        "BasicV2": "it has no network integration, so it cannot reach private nodes",
        "Standard": "it has no network integration, so it cannot reach private nodes",
    }
)
"""Tiers that a reader of Azure's price list might ask for, with why they can't work here."""
