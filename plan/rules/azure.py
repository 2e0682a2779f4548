"""Rules of a stack file for Azure, all in one list. Each yields the key at fault and a sentence; none raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plan import ports, ssh_keys
from plan.azure_facts import (
    DISALLOWED_ADMIN_NAMES,
    PREMIUM_V2_BASELINE_IOPS,
    PREMIUM_V2_BASELINE_MBPS,
    PREMIUM_V2_MBPS_PER_IOPS,
    RESERVED_TAG_PREFIXES,
    SHARED_DISKS,
    SYSTEM_USER_PREFIXES,
    SYSTEM_USERS,
    VM_SIZES,
    max_shares,
    quota_name,
)
from plan.azure_network import (
    AZURE_RESERVED,
    BASTION_MIN_PREFIX,
    conflicts,
    node_capacity,
    private_links,
    zone_of,
)
from plan.rules import azure_gateway, azure_places, products, service
from plan.rules.service import Findings, Known
from plan.settings.azure import AzureSettings
from plan.vocabulary import SERVICE_USER, DiskSku, Environment, ManagedTag, ModelStoreKind, PrivateDnsOwner


def check(settings: AzureSettings, bases: Mapping[str, str], file: str) -> None:
    """Apply every rule. `bases` maps each name that the model registry serves to its base model.

    Raises:
        InputError: with one fault for each broken rule.
    """
    service.check(RULES, settings, Known(bases, settings.nodes.numbers, _engines(settings)), file)


def _addresses(settings: AzureSettings, _: Known) -> Findings:
    with_bastion, with_gateway = settings.access.bastion.sku.needs_subnet, settings.gateway.existing is None
    for key, sentence in conflicts(settings.network, with_bastion=with_bastion, with_gateway=with_gateway):
        yield f"network.{key}", sentence
    subnet, count = settings.network.nodes_subnet, settings.nodes.count
    if node_capacity(subnet) < count:
        yield (
            "network.nodes_subnet",
            f"{subnet} holds {node_capacity(subnet)} nodes (Azure keeps {AZURE_RESERVED} addresses), "
            f"nodes.count is {count}; use a larger range",
        )
    bastion = settings.network.bastion_subnet
    if with_bastion and bastion.prefixlen > BASTION_MIN_PREFIX:
        yield (
            "network.bastion_subnet",
            f"{bastion} is too small for Azure Bastion; allowed: /{BASTION_MIN_PREFIX} or larger",
        )


def _private_dns(settings: AzureSettings, _: Known) -> Findings:
    """A zone of another owner is used as it is, so it must be one that resolves here already."""
    network, needed = settings.network, [link.value for link in private_links(settings)]
    if network.private_dns_zones and network.private_dns is PrivateDnsOwner.POLICY:
        yield (
            "network.private_dns_zones",
            "is for `private_dns: own`; with `policy`, the policy chooses zones; remove it",
        )
    elif network.private_dns_zones and network.existing_vnet is None:
        yield "network.private_dns_zones", "needs network.existing_vnet: a new VNet is linked to no zone yet"
    for index, zone_id in enumerate(network.private_dns_zones):
        if zone_of(zone_id) not in needed:
            yield (
                f"network.private_dns_zones[{index}]",
                f"'{zone_of(zone_id)}' is no zone that this stack needs; allowed: {', '.join(needed)}",
            )


def _engines(settings: AzureSettings) -> int:
    """How many engines a node of this size has at most; a size that is not known has one."""
    size = VM_SIZES.get(settings.nodes.size)
    return ports.engines_of_a_node(settings.serving.topology, size.gpus if size else 0)


def _size(settings: AzureSettings, _: Known) -> Findings:
    nodes, size = settings.nodes, VM_SIZES.get(settings.nodes.size)
    if size is None:
        yield "nodes.size", f"'{nodes.size}' is not a size this program knows; allowed: {', '.join(VM_SIZES)}"
        return
    if size.gpus == 0 and settings.environment is Environment.PROD:
        yield (
            "nodes.size",
            f"{nodes.size} has no GPU, and environment is prod; allowed there: "
            f"{', '.join(name for name, one in VM_SIZES.items() if one.gpus)}",
        )
    needed = nodes.count * size.vcpus
    family = quota_name(size, nodes.priority)
    if needed > nodes.quota_vcpus:
        yield (
            "nodes.count",
            f"{nodes.count} x {nodes.size} needs {needed} vCPUs of {family}, nodes.quota_vcpus is "
            f"{nodes.quota_vcpus}; allowed: at most {nodes.quota_vcpus // size.vcpus}, or raise the quota",
        )


def _model_store(settings: AzureSettings, _: Known) -> Findings:
    store, nodes = settings.model_store, settings.nodes
    if store.kind is ModelStoreKind.AZURE_FILES:
        for key in sorted({"sku", "iops", "mbps"} & store.model_fields_set):
            value = getattr(store, key)
            if value is not None:
                yield f"model_store.{key}", f"'{value}' applies to `kind: shared-disk` only; remove it"
        return
    facts = SHARED_DISKS[store.sku]
    if store.size_gib > facts.max_size_gib:
        yield (
            "model_store.size_gib",
            f"{store.size_gib} is too large for {store.sku}; allowed: up to {facts.max_size_gib}",
        )
    ceiling = max_shares(store.sku, store.size_gib)
    if nodes.count > ceiling:
        yield (
            "nodes.count",
            f"{nodes.count} nodes can't share one {store.size_gib} GiB {store.sku} disk; allowed: at most {ceiling} "
            f"(or `model_store.sku: {DiskSku.PREMIUM_V2}` for 15, or `model_store.kind: azure-files`)",
        )
    if not facts.own_performance:
        for key, value in (("iops", store.iops), ("mbps", store.mbps)):
            if value is not None:
                yield (
                    f"model_store.{key}",
                    f"{value} can't be set for {store.sku}, whose performance follows its size; allowed with: "
                    f"{DiskSku.PREMIUM_V2}, {DiskSku.ULTRA}",
                )
        return
    most_iops = facts.most_iops(store.size_gib)
    for key, value, most in (("iops", store.iops, most_iops), ("mbps", store.mbps, facts.max_mbps)):
        if value is not None and value > most:
            disk = f"{store.size_gib} GiB of {store.sku}"
            yield f"model_store.{key}", f"{value} is too much for {disk}; allowed: up to {most}"
    iops, mbps = store.iops or PREMIUM_V2_BASELINE_IOPS, store.mbps or PREMIUM_V2_BASELINE_MBPS
    if store.sku is DiskSku.PREMIUM_V2 and mbps > iops * PREMIUM_V2_MBPS_PER_IOPS:
        yield (
            "model_store.mbps",
            f"{mbps} needs at least {int(mbps / PREMIUM_V2_MBPS_PER_IOPS)} IOPS "
            f"(0.25 MB/s for each), model_store.iops is {iops}",
        )


def _access(settings: AzureSettings, _: Known) -> Findings:
    bastion = settings.access.bastion
    if bastion.tunnel and not bastion.sku.can_tunnel:
        yield "access.bastion.sku", f"'{bastion.sku}' can't tunnel; allowed with `tunnel: true`: Standard, Premium"


def _tags(settings: AzureSettings, _: Known) -> Findings:
    """Azure compares tag names without case and keeps some for itself (Microsoft's Tags API reference)."""
    seen: dict[str, str] = {}
    for name in settings.tags:
        folded = name.casefold()
        if folded in set(ManagedTag):
            yield f"tags.{name}", "is set by this program on every resource; choose another name"
        elif folded.startswith(RESERVED_TAG_PREFIXES):
            prefixes = ", ".join(RESERVED_TAG_PREFIXES)
            yield f"tags.{name}", f"must not start with {prefixes}, which Azure keeps for itself; choose another name"
        elif folded in seen:
            yield f"tags.{name}", f"is the same tag as {seen[folded]} (names are compared without case); keep one"
        seen[folded] = name


def _login(settings: AzureSettings, _: Known) -> Findings:
    name = settings.nodes.admin_username
    if name == SERVICE_USER:
        yield "nodes.admin_username", f"'{name}' is the user that services run as; choose another, such as azureuser"
    if name in DISALLOWED_ADMIN_NAMES:
        yield "nodes.admin_username", f"'{name}' is a login name that Azure refuses; choose another, such as azureuser"
    if name in SYSTEM_USERS or name.startswith(SYSTEM_USER_PREFIXES):
        yield (
            "nodes.admin_username",
            f"'{name}' is a user that the image has already; choose another, such as azureuser",
        )
    for index, key in enumerate(settings.access.ssh_public_keys):
        if wrong := ssh_keys.problem(key):
            yield f"access.ssh_public_keys[{index}]", wrong


def _lists(settings: AzureSettings, _: Known) -> Findings:
    own = {
        "access.ssh_public_keys": settings.access.ssh_public_keys,
        "access.operator_object_ids": [guid.lower() for guid in settings.access.operator_object_ids],
        "network.reserved_ranges": settings.network.reserved_ranges,
        "network.private_dns_zones": [zone_of(zone_id) for zone_id in settings.network.private_dns_zones],
    }
    common = (service.lists(settings), products.lists(settings), azure_gateway.lists(settings))
    for lists in (own, *common):
        yield from service.no_item_twice(lists)


RULES: tuple[Callable[[AzureSettings, Known], Findings], ...] = (
    _addresses,
    _private_dns,
    *azure_places.RULES,
    *azure_gateway.RULES,
    products.products_and_models,
    products.routes_reach_models,
    products.models_share_nodes,
    products.nodes_behind,
    _size,
    _model_store,
    service.models_on_nodes,
    service.somebody_serves,
    service.ports_apart,
    _access,
    _tags,
    _login,
    _lists,
)
