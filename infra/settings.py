"""What a stack file may say: typed, described, unknown keys refused.

These models check one field at a time; what concerns several fields stands in `infra.rules`. The reference page
docs/reference/settings.md is generated from the descriptions here.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator

from infra.skus import VM_SIZES
from infra.vocabulary import (
    Affinity,
    BastionSku,
    Delivery,
    DiskSku,
    Environment,
    GatewayInbound,
    GatewayTier,
    ModelStoreKind,
    Priority,
    PrivateDnsKeeper,
    PublicAccess,
    QuotaPeriod,
    Target,
    Topology,
)


def _network(value: object) -> IPv4Network:
    """Accept only text in CIDR form with no host bits, such as 10.0.0.0/24."""
    if not isinstance(value, str | IPv4Network):
        raise ValueError("must be an IPv4 network in CIDR form, such as 10.0.0.0/24")
    try:
        return IPv4Network(value)
    except ValueError as error:
        raise ValueError(f"must be an IPv4 network in CIDR form, such as 10.0.0.0/24 ({error})") from error


def _text(value: object) -> object:
    """Let a bare YAML number stand for its text: `zone: 1`."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _defaults(value: object) -> object:
    """Let a key with nothing after it stand for its defaults: `llama-3.1-8b:`."""
    return {} if value is None else value


def _named(value: object) -> object:
    """Let a bare name stand for an entry without further facts: `subscriptions: [web, {name: app, owner: Ada}]`."""
    return {"name": value} if isinstance(value, str) else value


Cidr = Annotated[IPv4Network, BeforeValidator(_network)]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,48}[a-z0-9]$")]
TagKey = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^<>%&\\?/]+$")]
TagValue = Annotated[str, StringConstraints(max_length=256)]
SshPublicKey = Annotated[
    str, StringConstraints(pattern=r"^(ssh-ed25519|ssh-rsa|ecdsa-sha2-\S+) [A-Za-z0-9+/=]+( .*)?$")
]
ZoneNumber = Annotated[Literal["1", "2", "3"], BeforeValidator(_text)]
Port = Annotated[int, Field(ge=1024, le=65_535)]
NodeNumber = Annotated[int, Field(ge=1, strict=True)]
Origin = Annotated[str, StringConstraints(pattern=r"^https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$")]
VnetId = Annotated[
    str,
    StringConstraints(
        pattern=r"(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.Network/virtualNetworks/[^/]+$"
    ),
]
GatewayId = Annotated[
    str,
    StringConstraints(
        pattern=r"(?i)^/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.ApiManagement/service/[^/]+$"
    ),
]
Email = Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$", max_length=254)]
Guid = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$")]


LOCATION_KEY = "azure-native:location"
"""The region is the Azure provider's own setting; it stands in the stack file under this key."""


class Section(BaseModel):
    """Base of every settings section: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse `count: yes`, which Python would count as 1."""
        field = cls.model_fields[str(info.field_name)]
        if isinstance(value, bool) and field.annotation in (int, float, int | None):
            raise ValueError("must be a number, not a switch")
        return value


class Network(Section):
    """The VNet and its subnets. Node addresses count up from the fifth address of `nodes_subnet`."""

    existing_vnet: VnetId | None = Field(
        None, description="ARM id of a VNet that is there already: the subnets are made in it, the VNet is left alone."
    )
    private_dns: PrivateDnsKeeper = Field(
        PrivateDnsKeeper.OWN,
        description="Who writes the names of private endpoints: `own` zones, or the organisation's Azure `policy`.",
    )
    address_space: Cidr = Field(IPv4Network("10.0.0.0/16"), description="The VNet's range (CIDR).")
    nodes_subnet: Cidr = Field(IPv4Network("10.0.0.0/24"), description="GPU nodes (CIDR).")
    gateway_subnet: Cidr = Field(
        IPv4Network("10.0.1.0/24"), description="API Management's own subnet (CIDR); its minimum depends on the tier."
    )
    endpoints_subnet: Cidr = Field(IPv4Network("10.0.2.0/24"), description="Private endpoints (CIDR).")
    bastion_subnet: Cidr = Field(IPv4Network("10.0.3.0/26"), description="Azure Bastion (CIDR, /26 or larger).")
    reserved_ranges: tuple[Cidr, ...] = Field(
        (), description="Ranges in use elsewhere (peered VNets, on-premises) that the VNet must not overlap (CIDRs)."
    )


class Image(Section):
    """The VM image, pinned: an image of H100 drivers that moves by itself breaks nodes at night."""

    publisher: str = Field("microsoft-dsvm", description="Marketplace publisher.")
    offer: str = Field("ubuntu-hpc", description="Marketplace offer (Ubuntu with NVIDIA driver and CUDA).")
    sku: str = Field("2404", description="Marketplace SKU.")
    version: str = Field(description="Exact image version; `latest` is refused.", pattern=r"^\d+\.\d+\.\d+$")


class AutoShutdown(Section):
    """Daily deallocation, so that a forgotten experiment stops costing money. Local NVMe is blank afterwards."""

    enabled: bool = Field(False, description="Deallocate the nodes every day.")
    time: str = Field("1900", description="Time of day, 24 h, HHMM.", pattern=r"^([01]\d|2[0-3])[0-5]\d$")
    timezone: str = Field("UTC", description="Windows time-zone id, as Azure's schedules use.", min_length=1)


class Nodes(Section):
    """The GPU VMs."""

    size: str = Field(
        "Standard_NC40ads_H100_v5",
        description="VM size with GPUs.",
        json_schema_extra={"enum": list(VM_SIZES)},  # said here, checked in infra.rules with a better sentence
    )
    count: int = Field(2, ge=1, le=64, description="Number of nodes.")
    quota_vcpus: int = Field(
        80, ge=0, description="vCPU quota you were granted for the size's family in this region (vCPUs)."
    )
    zone: ZoneNumber | None = Field(None, description="Availability zone, 1-3; none means regional.")
    image: Image = Field(description="The VM image.")
    priority: Priority = Field(
        Priority.REGULAR, description="`spot` is cheaper and can be evicted; set at creation only."
    )
    os_disk_gib: int = Field(256, ge=256, le=4095, description="OS disk size (GiB); it dies with the VM.")
    admin_username: str = Field(
        "azureuser", description="Login name on the nodes.", pattern=r"^[a-z_][a-z0-9_-]{0,31}$"
    )
    auto_shutdown: AutoShutdown = Field(AutoShutdown(), description="Daily deallocation.")


class ModelStore(Section):
    """Where model files live, seen by every node at /mnt/models."""

    kind: ModelStoreKind = Field(
        ModelStoreKind.SHARED_DISK, description="`shared-disk`: one writer, read-only mounts; `azure-files`: NFS 4.1."
    )
    size_gib: int = Field(1024, ge=100, le=65_536, description="Capacity (GiB).")
    sku: DiskSku = Field(DiskSku.PREMIUM, description="Managed disk SKU (shared-disk only).")
    iops: int | None = Field(None, ge=3_000, description="Provisioned IOPS (Premium SSD v2 and Ultra only).")
    mbps: int | None = Field(None, ge=125, description="Provisioned throughput (MB/s; Premium SSD v2 and Ultra only).")


class ModelPlacement(Section):
    """One served model."""

    nodes: tuple[NodeNumber, ...] | None = Field(
        None, min_length=1, description="Node numbers, counted from 1, that serve it; none means all nodes."
    )
    system_prompt: str | None = Field(
        None, min_length=1, max_length=32_768, description="System prompt for this model, instead of the registry's."
    )


class Ports(Section):
    """Listening ports. Where they may be reached from is fixed: see `infra ports`."""

    wrapper: Port = Field(8000, description="The wrapper, on the node's private address.")
    vllm: Port = Field(5005, description="vLLM, loopback only.")
    ray_gcs: Port = Field(6379, description="Ray's GCS on the head; workers join here.")
    ray_client: Port = Field(10_001, description="Ray client server, loopback only (nodes never join here).")
    ray_dashboard: Port = Field(8265, description="Ray dashboard and job API, loopback only.")


class Serving(Section):
    """Which models run where."""

    models: dict[str, Annotated[ModelPlacement, BeforeValidator(_defaults)]] = Field(
        min_length=1, description="Served models by their name in the model registry (`huddle models list`)."
    )
    topology: Topology = Field(
        Topology.REPLICAS,
        description="`replicas`: each node serves whole models; `distributed`: one model across all nodes.",
    )
    ports: Ports = Field(Ports(), description="Listening ports.")


class TokenQuota(Section):
    """How much a subscription may use in a period, on top of the limit per minute."""

    tokens: int = Field(ge=1, description="Tokens in each period, prompt and answer together.")
    period: QuotaPeriod = Field(description="After which the count starts anew.")


class Subscription(Section):
    """An application with keys of its own. A bare name may stand for it."""

    name: Slug = Field(description="The application's name.")
    owner: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="Person or team behind it, shown with the subscription in portal and reports.",
    )


class Product(Section):
    """What application developers subscribe to."""

    display_name: str = Field(min_length=1, max_length=300, description="Name shown in the developer portal.")
    description: str = Field("", max_length=1000, description="Text shown in the developer portal.")
    terms: str = Field(
        "", max_length=10_000, description="Terms of use that a developer accepts before subscribing in the portal."
    )
    models: tuple[str, ...] | None = Field(
        None, min_length=1, description="Served model names this product may call; none means all."
    )
    system_prompt: str | None = Field(
        None, min_length=1, max_length=32_768, description="System prompt placed before the model's own."
    )
    requests_per_minute: int = Field(60, ge=1, description="Requests per minute and subscription.")
    tokens_per_minute: int = Field(20_000, ge=1, description="Tokens per minute and subscription.")
    token_quota: TokenQuota | None = Field(None, description="Tokens per period and subscription; none is no quota.")
    approval_required: bool = Field(False, description="Whether an administrator approves each subscription.")
    published: bool = Field(True, description="Whether the product is offered in the portal.")
    visible_to_guests: bool = Field(
        False, description="Whether a published product is shown without signing in, not only to signed-in developers."
    )
    subscriptions: tuple[Annotated[Subscription, BeforeValidator(_named)], ...] = Field(
        (), description="Applications that get keys of their own, created with the stack."
    )


class ExistingGateway(Section):
    """An API Management service that is there already: our API and products are added to it, the rest left alone."""

    id: GatewayId = Field(description="Its ARM id.")
    subnet: Cidr = Field(description="The range that it calls the nodes from (CIDR); the wrapper lets in nobody else.")


class PoolMember(Section):
    """A node's place in the gateway's backend pool."""

    weight: int = Field(1, ge=1, le=100, description="Share of the requests within its priority.")
    priority: int = Field(
        1, ge=0, le=100, description="Lower goes first; others only take over when all of a lower number are out."
    )


class PolicyFragments(Section):
    """Files with policy elements of your own, by the section of the API's policy that they go to."""

    inbound: tuple[str, ...] = Field(
        (), description="Files, from the project's directory, that hold for requests: after the product's limits."
    )
    outbound: tuple[str, ...] = Field((), description="Files that hold for answers; they may set headers.")


class Gateway(Section):
    """API Management in front of the nodes."""

    tier: GatewayTier = Field(GatewayTier.STANDARD_V2, description="API Management tier.")
    units: int = Field(1, ge=1, description="Scale units.")
    publisher_name: str = Field(min_length=1, max_length=100, description="Organisation named in the portal.")
    publisher_email: str = Field(
        description="Address for the service's notices.", pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$"
    )
    inbound: GatewayInbound = Field(
        GatewayInbound.PUBLIC, description="How clients reach it; what a tier offers differs."
    )
    public_access: PublicAccess = Field(
        PublicAccess.ENABLED,
        description="With a private endpoint, set `disabled` after the first `up`: Azure refuses it at creation.",
    )
    existing: ExistingGateway | None = Field(
        None, description="Use a service that is there already; tier, inbound and units then say what it is."
    )
    api_path: str = Field(
        "v1",
        pattern=r"^([a-z0-9][a-z0-9-]{0,39}/){0,3}v1$",
        description="Path of the API on the gateway; it ends in v1, as OpenAI clients expect of a base URL.",
    )
    products: dict[Slug, Product] = Field(min_length=1, description="Products by id.")
    azure_openai_api: bool = Field(
        False,
        description="Whether clients of Azure OpenAI (header api-key, path openai/deployments/…) are served, too.",
    )
    bearer_api: bool = Field(
        False, description="Whether a second address takes keys as `Authorization: Bearer`, as plain OpenAI clients do."
    )
    cors_origins: tuple[Origin, ...] = Field(
        (), max_length=50, description="Web origins whose pages may call the API from a browser; none means no CORS."
    )
    policy_fragments: PolicyFragments = Field(
        PolicyFragments(), description="Policy elements of your own; what would buffer, leak or bypass is refused."
    )
    keys_in_key_vault: bool = Field(
        False, description="Whether the stack's key vault also holds every subscription's keys, for its operators."
    )
    affinity: Affinity = Field(
        Affinity.NONE,
        description="`product` sends each product to a node of its own, for its prefix cache; others take over for it.",
    )
    drain: tuple[NodeNumber, ...] = Field((), description="Nodes that get no requests, for as long as they stand here.")
    pool: dict[int, PoolMember] = Field(
        default_factory=dict, description="Weight and priority of nodes by number; others have 1 and 1."
    )


class Bastion(Section):
    """Azure Bastion: the way in for operators, as no node has a public address."""

    sku: BastionSku = Field(BastionSku.NONE, description="`none`, or the SKU; it bills hourly until deleted.")
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


class Monitoring(Section):
    """Logs and metrics."""

    retention_days: int = Field(30, ge=30, le=730, description="Log Analytics retention (days).")
    daily_cap_gb: float = Field(1.0, gt=0, allow_inf_nan=False, description="Log Analytics daily ingestion cap (GB).")
    alert_emails: tuple[Email, ...] = Field(
        (), max_length=20, description="Who is told when an alert fires; nobody means alerts only show in the portal."
    )


class Jupyter(Section):
    """JupyterLab on the head node. Off unless asked for; then loopback and token only."""

    enabled: bool = Field(False, description="Install and start JupyterLab.")
    port: Port = Field(8889, description="Listening port, loopback only.")


class Settings(Section):
    """A whole stack file."""

    target: Target = Field(Target.AZURE, description="Where the service lands.")
    environment: Environment = Field(description="`prod` protects data and gateway; `dev` destroys cleanly.")
    location: str = Field(
        description="Azure region by its short name, such as eastus2.",
        pattern=r"^[a-z0-9]+$",
        json_schema_extra={"key": LOCATION_KEY},
    )
    name_prefix: str = Field(
        "huddleai", description="First part of every resource name.", pattern=r"^[a-z][a-z0-9]{1,11}$"
    )
    name_salt: str = Field(
        "",
        max_length=20,
        pattern=r"^[a-z0-9]*$",
        description="Changes the suffix of globally unique names, for when one is taken or soft-deleted.",
    )
    tags: dict[TagKey, TagValue] = Field(default_factory=dict, max_length=40, description="Tags on every resource.")
    network: Network = Field(Network(), description="VNet and subnets.")
    nodes: Nodes = Field(description="GPU VMs.")
    model_store: ModelStore = Field(ModelStore(), description="Shared model files.")
    serving: Serving = Field(description="Models, topology, ports.")
    gateway: Gateway = Field(description="API Management.")
    access: Access = Field(description="Operators' access and bundle delivery.")
    monitoring: Monitoring = Field(Monitoring(), description="Logs and metrics.")
    jupyter: Jupyter = Field(Jupyter(), description="JupyterLab.")


SECRET_KEYS: dict[str, str] = {
    "backend_key": "The key that the gateway shows to the wrapper.",
    "ray_token": "Ray's cluster token.",
    "model_hub_token": "Token for gated models on the model hub (optional).",
    "ssh_private_key": "The private half of one of access.ssh_public_keys; needed where `access.delivery` is `ssh`.",
}
"""Config keys that are secrets: never part of Settings, never in plain text, read only by the target."""
OPTIONAL_SECRET_KEYS = frozenset({"model_hub_token", "ssh_private_key"})
