"""What is served, and the nodes that serve it: the part of a plan that every target has. Frozen data, no decisions.

`ServicePlan` is what is served. `FleetPlan` adds the nodes: it is all that `cloud_init` may read, so that one bundle
fits every target. A target's own plan (`plan.azure.model`) adds what only it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from huddle.wrapper.routes import EngineRoute
from plan.ports import Flow
from plan.settings.service import Jupyter
from plan.vocabulary import Environment, ModelStoreKind, QuotaPeriod, Role, Segment, Topology


@dataclass(frozen=True)
class Hardware:
    """What the engine of one node computes on. `gpu` and `fabric` are keys of huddle's GPU facts; `vram_mib` is of each
    GPU. A node without GPUs computes on its CPU, in `memory_gib`.
    """

    gpu: str
    gpus: int
    vram_mib: int
    fabric: str
    memory_gib: int = 0

    @property
    def on_cpu(self) -> bool:
        """Whether the engine is the one for the CPU."""
        return self.gpus == 0


@dataclass(frozen=True)
class NodePlan:
    """One node; `model` is the base model that its engine loads."""

    number: int
    name: str
    role: Role
    address: IPv4Address
    model: str
    hardware: Hardware


@dataclass(frozen=True)
class Login:
    """The operators' account on a new machine, and the OpenSSH public keys that open it."""

    name: str
    ssh_public_keys: tuple[str, ...]


@dataclass(frozen=True)
class PathsPlan:
    """Where model files (shared, read-only) and the workspace (fast, may be blank after a boot) are on every node."""

    models: str = "/mnt/models"
    workspace: str = "/mnt/nvme"


@dataclass(frozen=True)
class StorePlan:
    """The shared model files as a node mounts them. `lun` is the disk's place on an Azure VM, for a shared disk."""

    kind: ModelStoreKind
    source: str
    lun: int | None


@dataclass(frozen=True)
class ServedModel:
    """A served name (a model or an alias), its base model, its nodes, and the stack's own system prompt if any.

    `routes` are those of the engine that it offers; None means all, as for a product.
    """

    name: str
    base: str
    nodes: tuple[int, ...]
    system_prompt: str | None
    routes: tuple[EngineRoute, ...] | None


@dataclass(frozen=True)
class EnginePlan:
    """How the engines of a base model are laid out: GPUs that split each layer, and groups of layers in a row.

    `copies`: engines on each node that serves it, each with GPUs of its own. `data_parallel`: copies of the model that
    each of them holds by itself, if its registry entry says so. `idle_gpus`: those of such a node that no
    engine takes. `cold_start_s`: from an engine's start to its first answer with empty caches, by the planner; None
    where it knows nothing.
    """

    base: str
    tensor_parallel: int
    pipeline_parallel: int
    copies: int = 1
    data_parallel: int = 1
    idle_gpus: int = 0
    cold_start_s: int | None = None

    @property
    def gpus_of_one(self) -> int:
        """GPUs that hold one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def replicas(self) -> int:
        """Copies of the model on each node, whoever holds them."""
        return self.copies * self.data_parallel


@dataclass(frozen=True)
class ServingPlan:
    """Models, topology and ports. `max_unavailable`: nodes that may be away at once for an update.

    `engines` is filled by `plan.engines`, which knows the models' shapes.
    """

    topology: Topology
    models: tuple[ServedModel, ...]
    wrapper_port: int
    vllm_port: int
    ray_gcs_port: int
    ray_client_port: int
    ray_dashboard_port: int
    max_unavailable: int = 1
    engines: tuple[EnginePlan, ...] = ()

    def engine(self, base: str) -> EnginePlan | None:
        """The layout of a base model's engine."""
        return next((engine for engine in self.engines if engine.base == base), None)

    def copies(self, base: str) -> int:
        """How many engines of a base model each of its nodes has."""
        engine = self.engine(base)
        return engine.copies if engine else 1

    def replicas(self, base: str) -> int:
        """How many copies of a base model each of its nodes has."""
        engine = self.engine(base)
        return engine.replicas if engine else 1


@dataclass(frozen=True)
class SubscriptionPlan:
    """An application's keys to a product; `owner` is the person or team behind it.

    `prefix` is what ids begin with in a gateway that others use, too.
    """

    product: str
    name: str
    owner: str | None = None
    prefix: str = ""

    @property
    def product_id(self) -> str:
        """The gateway's id of the product."""
        return f"{self.prefix}{self.product}"

    @property
    def id(self) -> str:
        """The gateway's id of it."""
        return subscription_id(self.product_id, self.name)

    @property
    def display_name(self) -> str:
        """What portal and reports call it."""
        return display_name(self.name, self.owner)

    @property
    def path(self) -> str:
        """What outputs and commands call it."""
        return f"{self.product}/{self.name}"


def subscription_id(product: str, subscription: str) -> str:
    """The id of an application's subscription. Neither part can hold an underscore, so no two pairs share an id."""
    return f"{product}_{subscription}"


def display_name(name: str, owner: str | None) -> str:
    """What a subscription is called in portal and reports."""
    return f"{name} ({owner})" if owner else name


@dataclass(frozen=True)
class QuotaPlan:
    """Tokens that a subscription may use in each period."""

    tokens: int
    period: QuotaPeriod


@dataclass(frozen=True, kw_only=True)
class ProductPlan:
    """What applications subscribe to; `models` is never empty. `id` is what gateway and wrapper call it."""

    id: str
    display_name: str
    description: str
    models: tuple[str, ...]
    routes: tuple[EngineRoute, ...] | None = None
    system_prompt: str | None
    requests_per_minute: int
    tokens_per_minute: int
    weight: int = 1
    subscriptions: tuple[SubscriptionPlan, ...]
    token_quota: QuotaPlan | None = None


@dataclass(frozen=True, kw_only=True)
class ServicePlan:
    """What is served, for whom, on which target."""

    project: str
    stack: str
    target: str
    environment: Environment
    serving: ServingPlan
    products: tuple[ProductPlan, ...]

    @property
    def protect(self) -> bool:
        """Whether data and gateway refuse deletion."""
        return self.environment is Environment.PROD


@dataclass(frozen=True, kw_only=True)
class FleetPlan(ServicePlan):
    """The nodes and what they listen on; `callers` holds the range of each network segment that calls a node."""

    nodes: tuple[NodePlan, ...]
    paths: PathsPlan = PathsPlan()
    callers: Mapping[Segment, IPv4Network]
    flows: tuple[Flow, ...]
    store: StorePlan
    jupyter: Jupyter
    allow_idle_gpus: bool = False
    rejoin_s: int = 0
    """How long who balances over the nodes may send nothing to one that was away, in seconds."""

    @property
    def head(self) -> NodePlan:
        """The first node: Ray's head."""
        return self.nodes[0]
