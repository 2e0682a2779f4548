"""From checked settings to the plan of a stack on Azure. Pure: nothing downstream computes a name, address or port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from huddle.errors import Fault, InputError
from plan import azure_time_zones as time_zones
from plan.azure.gateway_build import gateway_plan
from plan.azure.gateway_model import BREAKER_REST_S, GatewayPlan
from plan.azure.model import AccessPlan, AzurePlan, ComputePlan, ModelStorePlan, NetworkPlan
from plan.azure.names import Kind, Names, problem, stable_suffix
from plan.azure.ports import platform_flows
from plan.azure.security_rules import nsg_rules
from plan.azure_facts import VM_SIZES, max_shares
from plan.azure_network import AddressPlan, PrivateLink, plan_addresses, private_links, zone_of
from plan.build_service import base_models, serving_plan
from plan.model import Hardware, NodePlan
from plan.placement import Placement
from plan.ports import engines_of_a_node, node_flows
from plan.rules import azure as rules
from plan.settings.azure import AutoShutdown, AzureSettings
from plan.vocabulary import BastionSku, Delivery, DiskSku, ManagedTag, ModelStoreKind, Role, Segment

MODEL_DISK_LUN = 0
MODEL_DEVICE = "/dev/disk/huddle/models"
"""The udev rules' name for the model disk, wherever it is attached."""

SIZES: Mapping[str, Hardware] = MappingProxyType(
    {
        name: Hardware(
            gpu=size.gpu, gpus=size.gpus, vram_mib=size.vram_mib, fabric=size.fabric, memory_gib=size.memory_gib
        )
        for name, size in VM_SIZES.items()
    }
)
"""What an engine finds on a VM of each size."""


def build(settings: AzureSettings, *, project: str, stack: str, bases: Mapping[str, str], file: str) -> AzurePlan:
    """Check the rules that span fields and lay out the whole stack.

    `bases` maps each name that the model registry serves to its base model; `file` names the source in errors.

    Raises:
        InputError: a rule is broken, or a name would be refused by Azure.
    """
    rules.check(settings, bases, file)
    size = VM_SIZES[settings.nodes.size]
    names = Names(
        prefix=settings.name_prefix,
        stack=stack,
        suffix=stable_suffix(project, stack, settings.name_prefix, settings.name_salt),
        gpu=size.gpu.partition("-")[0],
    )
    _check_names(names, settings, stack, file)
    existing = settings.gateway.existing
    addresses = plan_addresses(
        settings.network,
        settings.nodes.count,
        with_bastion=settings.access.bastion.sku.needs_subnet,
        gateway_elsewhere=existing.subnet if existing else None,
    )
    numbers = settings.nodes.numbers
    nodes = _nodes(settings, names, addresses, bases)
    flows = tuple(
        node_flows(
            settings.serving,
            settings.jupyter,
            engines=engines_of_a_node(settings.serving.topology, size.gpus),
            clients=(Segment.GATEWAY,),
            operators=tuple(_operators(settings)),
        )
    )
    platform = tuple(platform_flows(settings))
    gateway = gateway_plan(settings, nodes, Placement(settings.serving, numbers), name=names.gateway, stack=stack)
    _check_entities(gateway, file)
    store = _store(settings, names)
    return AzurePlan(
        project=project,
        stack=stack,
        target=settings.target,
        environment=settings.environment,
        serving=serving_plan(settings.serving, numbers, bases),
        products=gateway.products,
        nodes=nodes,
        callers=addresses.subnets,
        flows=flows,
        store=store,
        jupyter=settings.jupyter,
        allow_idle_gpus=settings.nodes.allow_idle_gpus,
        rejoin_s=BREAKER_REST_S,
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
        platform_flows=platform,
        security_rules=MappingProxyType(
            {segment: nsg_rules(segment, (*flows, *platform)) for segment in addresses.own_subnets}
        ),
        compute=_compute(settings, store),
        gateway=gateway,
        access=AccessPlan(
            bastion_sku=settings.access.bastion.sku,
            tunnel=settings.access.bastion.tunnel,
            delivery=settings.access.delivery,
            operator_object_ids=settings.access.operator_object_ids,
        ),
        monitoring=settings.monitoring,
        network=NetworkPlan(
            tuple(private_links(settings)),
            settings.network.existing_vnet,
            settings.network.private_dns,
            MappingProxyType({PrivateLink(zone_of(each)): each for each in settings.network.private_dns_zones}),
        ),
    )


def _check_names(names: Names, settings: AzureSettings, stack: str, file: str) -> None:
    faults = [
        Fault(file, "name_prefix", f"{sentence} (made from the prefix and the stack's name '{stack}')")
        for kind, name in names.checks(settings.nodes.count)
        if (sentence := problem(kind, name))
    ]
    if faults:
        raise InputError(faults[0])


def _check_entities(gateway: GatewayPlan, file: str) -> None:
    """Only the prefix can make them too long: the names behind it are bounded by their own settings."""
    products, backends, pools = gateway.products, gateway.backends, gateway.pools
    ids = [*(each.id for each in products), *(each.id for each in backends), *(each.id for each in pools)]
    faults = [
        Fault(file, "gateway.existing.prefix", f"{sentence}; set a shorter prefix than {gateway.prefix!r}")
        for entity_id in ids
        if (sentence := problem(Kind.GATEWAY_CHILD, entity_id))
    ]
    if faults:
        raise InputError(faults[0])


def _operators(settings: AzureSettings) -> Iterator[Segment]:
    """Who may open a shell on a node."""
    if settings.access.bastion.sku.needs_subnet:
        yield Segment.BASTION
    elif settings.access.bastion.sku is not BastionSku.NONE:
        yield Segment.SHARED_BASTION
    if settings.access.delivery is Delivery.SSH:  # who deploys sits in a peered network or behind a VPN
        yield Segment.VIRTUAL_NETWORK


def _nodes(
    settings: AzureSettings, names: Names, addresses: AddressPlan, bases: Mapping[str, str]
) -> tuple[NodePlan, ...]:
    model_of = base_models(settings.serving, settings.nodes.numbers, bases)
    return tuple(
        NodePlan(
            number=number,
            name=names.node(number),
            role=Role.HEAD if number == 1 else Role.WORKER,
            address=address,
            model=model_of[number],
            hardware=SIZES[settings.nodes.size],
        )
        for number, address in enumerate(addresses.node_addresses, start=1)
    )


def _compute(settings: AzureSettings, store: ModelStorePlan) -> ComputePlan:
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
        auto_shutdown=_auto_shutdown(nodes.auto_shutdown),
        ultra_disk=store.kind is ModelStoreKind.SHARED_DISK and store.sku is DiskSku.ULTRA,
    )


def _auto_shutdown(asked: AutoShutdown) -> AutoShutdown:
    """The same with the time zone's Windows id, which Azure's schedules want; a rule has refused what is none."""
    return asked.model_copy(update={"timezone": time_zones.windows_id(asked.timezone)})


def _store(settings: AzureSettings, names: Names) -> ModelStorePlan:
    store = settings.model_store
    shared = store.kind is ModelStoreKind.SHARED_DISK
    return ModelStorePlan(
        kind=store.kind,
        source=MODEL_DEVICE if shared else names.nfs_source,
        lun=MODEL_DISK_LUN if shared else None,
        size_gib=store.size_gib,
        sku=store.sku,
        iops=store.iops,
        mbps=store.mbps,
        # The ceiling, not the node count: maxShares can only change while the disk is detached from every node.
        max_shares=max_shares(store.sku, store.size_gib),
    )
