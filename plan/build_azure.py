"""The plan: everything that components, templates, rules and reports need to know about one stack. Pure.

`build` turns checked settings into frozen dataclasses. Nothing downstream computes a name, an address or a port.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from types import MappingProxyType

from huddle.errors import Fault, InputError
from plan.azure_facts import VM_SIZES, VmSize, max_shares
from plan.azure_names import Names, problem, stable_suffix
from plan.azure_network import AddressPlan, plan_addresses
from plan.build_gateway import BackendPlan, GatewayPlan, ProductPlan, gateway_plan
from plan.ports import Flow, NsgRule, nsg_rules, port_table
from plan.rules import azure as rules
from plan.settings.azure import AutoShutdown, Image, Jupyter, Monitoring, Settings
from plan.vocabulary import (
    BastionSku,
    Delivery,
    DiskSku,
    Environment,
    ManagedTag,
    ModelStoreKind,
    Priority,
    PrivateDnsKeeper,
    Role,
    Target,
    Topology,
    Zone,
)

__all__ = ["BackendPlan", "GatewayPlan", "Plan", "ProductPlan", "build"]

MODEL_DISK_LUN = 0
MODELS_PATH = "/mnt/models"
NVME_PATH = "/mnt/nvme"


@dataclass(frozen=True)
class NodePlan:
    """One GPU VM; `model` is the base model that its engine loads."""

    number: int
    name: str
    role: Role
    address: IPv4Address
    model: str


@dataclass(frozen=True)
class ComputePlan:
    """What all nodes have in common."""

    size: VmSize
    quota_vcpus: int
    image: Image
    zone: str | None
    priority: Priority
    os_disk_gib: int
    admin_username: str
    ssh_public_keys: tuple[str, ...]
    auto_shutdown: AutoShutdown


@dataclass(frozen=True)
class ModelStorePlan:
    """The shared model files."""

    kind: ModelStoreKind
    size_gib: int
    sku: DiskSku
    iops: int | None
    mbps: int | None
    max_shares: int
    lun: int
    mount_path: str


@dataclass(frozen=True)
class ServedModel:
    """A served name (a model or an alias), its base model, its nodes, and the stack's own system prompt if any."""

    name: str
    base: str
    nodes: tuple[int, ...]
    system_prompt: str | None


@dataclass(frozen=True)
class EnginePlan:
    """How the engine of a base model is laid out: GPUs that split each layer, and groups of layers in a row."""

    base: str
    tensor_parallel: int
    pipeline_parallel: int


@dataclass(frozen=True)
class ServingPlan:
    """What runs on the nodes. `engines` is filled by `plan.engines`, which knows the models' shapes."""

    topology: Topology
    models: tuple[ServedModel, ...]
    wrapper_port: int
    vllm_port: int
    ray_gcs_port: int
    ray_client_port: int
    ray_dashboard_port: int
    head_address: IPv4Address
    engines: tuple[EnginePlan, ...] = ()

    def engine(self, base: str) -> EnginePlan | None:
        """The layout of a base model's engine."""
        return next((engine for engine in self.engines if engine.base == base), None)


@dataclass(frozen=True)
class AccessPlan:
    """Operators' way in."""

    bastion_sku: BastionSku
    tunnel: bool
    delivery: Delivery
    operator_object_ids: tuple[str, ...]


@dataclass(frozen=True)
class NetworkPlan:
    """What of the network is not ours: a VNet that is there already, and who writes private endpoints' names."""

    existing_vnet: str | None = None
    private_dns: PrivateDnsKeeper = PrivateDnsKeeper.OWN


@dataclass(frozen=True)
class Plan:
    """One stack, completely."""

    project: str
    stack: str
    target: Target
    environment: Environment
    location: str
    tags: Mapping[str, str]
    names: Names
    addresses: AddressPlan
    ports: tuple[Flow, ...]
    security_rules: Mapping[Zone, tuple[NsgRule, ...]]
    compute: ComputePlan
    nodes: tuple[NodePlan, ...]
    model_store: ModelStorePlan
    serving: ServingPlan
    gateway: GatewayPlan
    access: AccessPlan
    monitoring: Monitoring
    jupyter: Jupyter
    network: NetworkPlan = NetworkPlan()

    @property
    def protect(self) -> bool:
        """Whether data and gateway refuse deletion."""
        return self.environment is Environment.PROD

    @property
    def has_bastion_subnet(self) -> bool:
        """Whether Bastion needs a subnet and an address (the Developer SKU needs neither)."""
        return Zone.BASTION in self.addresses.subnets

    @property
    def head(self) -> NodePlan:
        """The first node: Ray's head."""
        return self.nodes[0]


def build(settings: Settings, *, project: str, stack: str, catalogue: Mapping[str, str], file: str) -> Plan:
    """Check the rules that span fields and lay out the whole stack.

    `catalogue` maps each name that the model registry serves to its base model; `file` names the source in errors.

    Raises:
        InputError: a rule is broken, or a name would be refused by Azure.
    """
    rules.check(settings, catalogue, file)
    names = Names(
        prefix=settings.name_prefix,
        stack=stack,
        suffix=stable_suffix(project, stack, settings.name_prefix, settings.name_salt),
        gpu=VM_SIZES[settings.nodes.size].gpu.partition("-")[0],
    )
    _check_names(names, settings, stack, file)
    existing = settings.gateway.existing
    addresses = plan_addresses(
        settings.network,
        settings.nodes.count,
        with_bastion=settings.access.bastion.sku.needs_subnet,
        gateway_elsewhere=existing.subnet if existing else None,
    )
    table = port_table(settings)
    nodes = _nodes(settings, names, addresses, catalogue)
    return Plan(
        project=project,
        stack=stack,
        target=settings.target,
        environment=settings.environment,
        location=settings.location,
        tags=MappingProxyType(
            {
                ManagedTag.PROJECT.value: project,
                ManagedTag.STACK.value: stack,
                ManagedTag.ENVIRONMENT.value: settings.environment.value,
                **settings.tags,
            }
        ),
        names=names,
        addresses=addresses,
        ports=table,
        security_rules=MappingProxyType({zone: nsg_rules(zone, table) for zone in addresses.own_subnets}),
        compute=_compute(settings),
        nodes=nodes,
        model_store=_model_store(settings),
        serving=_serving(settings, nodes, catalogue),
        gateway=gateway_plan(settings, nodes, names.gateway),
        access=AccessPlan(
            bastion_sku=settings.access.bastion.sku,
            tunnel=settings.access.bastion.tunnel,
            delivery=settings.access.delivery,
            operator_object_ids=settings.access.operator_object_ids,
        ),
        monitoring=settings.monitoring,
        jupyter=settings.jupyter,
        network=NetworkPlan(settings.network.existing_vnet, settings.network.private_dns),
    )


def _check_names(names: Names, settings: Settings, stack: str, file: str) -> None:
    faults = [
        Fault(file, "name_prefix", f"{sentence} (made from the prefix and the stack's name '{stack}')")
        for kind, name in names.checks(settings.nodes.count)
        if (sentence := problem(kind, name))
    ]
    if faults:
        raise InputError(faults[0])


def _nodes(
    settings: Settings, names: Names, addresses: AddressPlan, catalogue: Mapping[str, str]
) -> tuple[NodePlan, ...]:
    model_of = {
        number: catalogue[name]
        for name, placement in settings.serving.models.items()
        for number in (placement.nodes or range(1, settings.nodes.count + 1))
    }
    return tuple(
        NodePlan(
            number=number,
            name=names.node(number),
            role=Role.HEAD if number == 1 else Role.WORKER,
            address=address,
            model=model_of[number],
        )
        for number, address in enumerate(addresses.node_addresses, start=1)
    )


def _compute(settings: Settings) -> ComputePlan:
    nodes = settings.nodes
    return ComputePlan(
        size=VM_SIZES[nodes.size],
        quota_vcpus=nodes.quota_vcpus,
        image=nodes.image,
        zone=nodes.zone,
        priority=nodes.priority,
        os_disk_gib=nodes.os_disk_gib,
        admin_username=nodes.admin_username,
        ssh_public_keys=settings.access.ssh_public_keys,
        auto_shutdown=nodes.auto_shutdown,
    )


def _model_store(settings: Settings) -> ModelStorePlan:
    store = settings.model_store
    return ModelStorePlan(
        kind=store.kind,
        size_gib=store.size_gib,
        sku=store.sku,
        iops=store.iops,
        mbps=store.mbps,
        # The ceiling, not the node count: maxShares can only change while the disk is detached from every node.
        max_shares=max_shares(store.sku, store.size_gib),
        lun=MODEL_DISK_LUN,
        mount_path=MODELS_PATH,
    )


def _serving(settings: Settings, nodes: tuple[NodePlan, ...], catalogue: Mapping[str, str]) -> ServingPlan:
    ports = settings.serving.ports
    return ServingPlan(
        topology=settings.serving.topology,
        models=tuple(
            ServedModel(
                name=name,
                base=catalogue[name],
                nodes=tuple(sorted(placement.nodes or (node.number for node in nodes))),
                system_prompt=placement.system_prompt,
            )
            for name, placement in sorted(settings.serving.models.items())
        ),
        wrapper_port=ports.wrapper,
        vllm_port=ports.vllm,
        ray_gcs_port=ports.ray_gcs,
        ray_client_port=ports.ray_client,
        ray_dashboard_port=ports.ray_dashboard,
        head_address=nodes[0].address,
    )
