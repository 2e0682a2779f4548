"""The settings of a stack file for Azure only. The reference page is generated from here.

These models check one field at a time; what concerns several fields stands in `plan.rules`.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from huddle.forms import Form
from plan.azure_facts import VM_SIZES
from plan.secrets import Secret
from plan.settings import service
from plan.settings.azure_gateway import ApiManagement
from plan.settings.service import ServiceSettings
from plan.settings.types import Cidr, Guid, PrivateZoneId, Section, SshPublicKey, VnetId, ZoneNumber, nothing_of
from plan.vocabulary import BastionSku, Delivery, DiskSku, ImageSecurity, ModelStoreKind, Priority, PrivateDnsOwner

LOCATION_KEY = "azure-native:location"
"""The region is the Azure provider's own setting; it stands in the stack file under this key."""


class Network(Section):
    """The VNet and its subnets. Node addresses count up from the fifth address of `nodes_subnet`."""

    existing_vnet: VnetId | None = Field(
        None, description="ARM id of an existing VNet. The subnets are created in it; the VNet is not changed."
    )
    private_dns: PrivateDnsOwner = Field(
        PrivateDnsOwner.OWN,
        description="Who creates DNS records of private endpoints: `own` zones, or your organisation's Azure `policy`.",
    )
    private_dns_zones: tuple[PrivateZoneId, ...] = Field(
        (),
        description="ARM ids of private DNS zones that the existing VNet is linked to already; the stack's endpoints "
        "are named in them, and it makes only the zones that are missing here. A VNet takes one zone of a name.",
    )
    address_space: Cidr = Field(IPv4Network("10.0.0.0/16"), description="The VNet's range (CIDR).")
    nodes_subnet: Cidr = Field(IPv4Network("10.0.0.0/24"), description="GPU nodes (CIDR).")
    gateway_subnet: Cidr = Field(
        IPv4Network("10.0.1.0/24"), description="API Management's own subnet (CIDR); its minimum depends on the tier."
    )
    endpoints_subnet: Cidr = Field(IPv4Network("10.0.2.0/24"), description="Private endpoints (CIDR).")
    bastion_subnet: Cidr = Field(IPv4Network("10.0.3.0/26"), description="Azure Bastion (CIDR, /26 or larger).")
    reserved_ranges: tuple[Cidr, ...] = Field(
        (), description="Ranges used elsewhere (peered VNets, on-premises), which the VNet must not overlap (CIDRs)."
    )


class Image(Section):
    """The VM image, pinned: an image of H100 drivers that moves by itself breaks nodes at night."""

    publisher: str = Field("microsoft-dsvm", description="Marketplace publisher.")
    offer: str = Field("ubuntu-hpc", description="Marketplace offer (Ubuntu with NVIDIA driver and CUDA).")
    sku: str = Field("2404", description="Marketplace SKU.")
    version: Annotated[str, Form(r"\d+\.\d+\.\d+", "three numbers with dots between them")] = Field(
        description="Exact image version; `latest` is refused."
    )
    security: ImageSecurity = Field(
        ImageSecurity.TRUSTED_LAUNCH,
        description="Security type of the VMs. `az vm image show` tells whether the image takes Trusted Launch.",
    )


class AutoShutdown(Section):
    """Daily deallocation, so that a forgotten experiment stops costing money. Local NVMe is blank afterwards."""

    enabled: bool = Field(False, description="Deallocate the nodes every day.")
    time: Annotated[str, Form(r"([01]\d|2[0-3])[0-5]\d", "four digits in quotes, '0000' to '2359'")] = Field(
        "1900", description="Time of day, 24 h, HHMM."
    )
    timezone: str = Field(
        "UTC",
        description="Windows time-zone id, as Azure's schedules use; an IANA name such as Europe/Berlin becomes one.",
        min_length=1,
    )


class Nodes(Section):
    """The GPU VMs."""

    size: str = Field(
        "Standard_NC40ads_H100_v5",
        description="VM size with GPUs.",
        json_schema_extra={"enum": list(VM_SIZES)},  # said here, checked in plan.rules with a better sentence
    )
    count: int = Field(2, ge=1, le=64, description="Number of nodes.")
    quota_vcpus: int = Field(
        80,
        ge=0,
        description="vCPU quota you were granted in this region for the size's family, or lowPriorityCores for `spot`.",
    )
    zone: ZoneNumber | None = Field(None, description="Availability zone, 1-3; none means regional.")
    image: Image = Field(description="The VM image.")
    allow_idle_gpus: bool = Field(
        False, description="Whether a model may leave GPUs of a node without an engine; they are paid for all the same."
    )
    priority: Priority = Field(
        Priority.REGULAR, description="`spot` is cheaper and can be evicted; can only be set at creation."
    )
    os_disk_gib: int = Field(256, ge=256, le=4095, description="OS disk size (GiB). The disk is deleted with the VM.")
    admin_username: Annotated[
        str,
        Form(r"[a-z_][a-z0-9_-]{0,31}", "1 to 32 lower-case letters, digits, _ and -, starting with a letter or _"),
    ] = Field("azureuser", description="Login name on the nodes.")
    auto_shutdown: AutoShutdown = Field(AutoShutdown(), description="Daily deallocation.")

    @property
    def numbers(self) -> tuple[int, ...]:
        """The nodes' numbers, counted from 1."""
        return tuple(range(1, self.count + 1))


class ModelStore(Section):
    """Where model files live, seen by every node at /mnt/models."""

    kind: ModelStoreKind = Field(
        ModelStoreKind.SHARED_DISK, description="`shared-disk`: one writer, read-only mounts; `azure-files`: NFS 4.1."
    )
    size_gib: int = Field(1024, ge=100, le=65_536, description="Capacity (GiB).")
    sku: DiskSku = Field(DiskSku.PREMIUM, description="Managed disk SKU (shared-disk only).")
    iops: int | None = Field(None, ge=3_000, description="Provisioned IOPS (Premium SSD v2 and Ultra only).")
    mbps: int | None = Field(None, ge=125, description="Provisioned throughput (MB/s; Premium SSD v2 and Ultra only).")


class Bastion(Section):
    """Azure Bastion, through which operators reach the nodes: no node has a public address."""

    sku: BastionSku = Field(BastionSku.NONE, description="`none`, or the SKU; billed hourly until it is deleted.")
    tunnel: bool = Field(False, description="Whether `az network bastion tunnel` must work (Standard or Premium).")


class Access(Section):
    """How operators and the bundle reach the nodes."""

    bastion: Bastion = Field(Bastion(), description="Azure Bastion.")
    ssh_public_keys: tuple[SshPublicKey, ...] = Field(min_length=1, description="OpenSSH public keys of the operators.")
    delivery: Delivery = Field(
        Delivery.RUN_COMMAND,
        description="How bundles reach nodes: Azure's run command, or SSH from a network that reaches their addresses.",
    )
    operator_object_ids: tuple[Guid, ...] = Field(
        (), description="Entra object ids of users (not groups) that may read the stack's secrets in Key Vault."
    )


class Monitoring(service.Monitoring):
    """Logs, metrics and alerts."""

    retention_days: int = Field(30, ge=30, le=730, description="Log Analytics retention (days).")
    daily_cap_gb: float = Field(1.0, gt=0, allow_inf_nan=False, description="Log Analytics daily ingestion cap (GB).")


class AzureSettings(ServiceSettings):
    """A whole stack file for Azure."""

    outside: ClassVar[dict[str, str]] = {"location": LOCATION_KEY}
    secrets: ClassVar[tuple[Secret, ...]] = tuple(Secret)

    @property
    def brought_secrets(self) -> tuple[tuple[str, Secret], ...]:
        """The operator's key, where bundles go over SSH."""
        over_ssh = self.access.delivery is Delivery.SSH
        return (("access.delivery", Secret.SSH_PRIVATE_KEY),) if over_ssh else ()

    target: Literal["azure"] = Field("azure", description="The target that the service runs on.")
    location: Annotated[str, BeforeValidator(nothing_of)] = Field(
        "",  # a rule asks for it, so that a stack without a region hears of its other faults, too
        description="Azure region by its short name, such as eastus2.",
        json_schema_extra={"key": LOCATION_KEY, "required": True},
    )
    name_prefix: Annotated[
        str, Form(r"[a-z][a-z0-9]{1,11}", "2 to 12 lower-case letters and digits, starting with a letter")
    ] = Field("huddleai", description="First part of every resource name.")
    name_salt: Annotated[str, Form(r"[a-z0-9]{0,20}", "at most 20 lower-case letters and digits")] = Field(
        "",
        description="Changes the suffix of globally unique names. Use it if a name is taken or soft-deleted.",
    )
    network: Network = Field(Network(), description="VNet and subnets.")
    nodes: Nodes = Field(description="GPU VMs.")
    model_store: ModelStore = Field(ModelStore(), description="Shared model files.")
    gateway: ApiManagement = Field(description="API Management.")
    access: Access = Field(description="Operators' access and bundle delivery.")
    monitoring: Monitoring = Field(Monitoring(), description="Logs, metrics and alerts.")
