"""Cross-field rules of a stack file, all in one place. Each yields the key and a sentence; none raises."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from huddle.errors import Fault, InputError
from plan import ports
from plan.azure_facts import (
    DISALLOWED_ADMIN_NAMES,
    PREMIUM_V2_BASELINE_IOPS,
    PREMIUM_V2_BASELINE_MBPS,
    PREMIUM_V2_MBPS_PER_IOPS,
    RESERVED_TAG_PREFIXES,
    SHARED_DISKS,
    SPOT_QUOTA,
    VM_SIZES,
    max_shares,
)
from plan.azure_network import AZURE_RESERVED, BASTION_MIN_PREFIX, conflicts, node_capacity
from plan.rules import gateway as gateway_rules
from plan.settings.azure import Settings
from plan.vocabulary import (
    DiskSku,
    ManagedTag,
    ModelStoreKind,
    Priority,
    Target,
    Topology,
)

Findings = Iterator[tuple[str, str]]


def check(settings: Settings, catalogue: Mapping[str, str], file: str) -> None:
    """Apply every rule. `catalogue` maps each name that the model registry serves to its base model.

    Raises:
        InputError: with one fault for each broken rule.
    """
    faults = [Fault(file, key, sentence) for rule in RULES for key, sentence in rule(settings, catalogue)]
    if faults:
        raise InputError(*faults)


def _target(settings: Settings, _: Mapping[str, str]) -> Findings:
    if settings.target is not Target.AZURE:
        yield "target", f"'{settings.target}' is not built yet; allowed: {Target.AZURE}"


def _addresses(settings: Settings, _: Mapping[str, str]) -> Findings:
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


def _size(settings: Settings, _: Mapping[str, str]) -> Findings:
    nodes, size = settings.nodes, VM_SIZES.get(settings.nodes.size)
    if size is None:
        yield "nodes.size", f"'{nodes.size}' is not a GPU size this program knows; allowed: {', '.join(VM_SIZES)}"
        return
    needed = nodes.count * size.vcpus
    family = SPOT_QUOTA if nodes.priority is Priority.SPOT else size.quota_family
    if needed > nodes.quota_vcpus:
        yield (
            "nodes.count",
            f"{nodes.count} x {nodes.size} needs {needed} vCPUs of {family}, nodes.quota_vcpus is "
            f"{nodes.quota_vcpus}; allowed: at most {nodes.quota_vcpus // size.vcpus}, or raise the quota",
        )


def _model_store(settings: Settings, _: Mapping[str, str]) -> Findings:
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
    if facts.zonal_only and nodes.zone is None:
        yield (
            "model_store.sku",
            f"'{store.sku}' disks live in one zone; set nodes.zone (allowed: 1, 2, 3) or another sku",
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
    for key, value, most in (("iops", store.iops, facts.max_iops), ("mbps", store.mbps, facts.max_mbps)):
        if value is not None and value > most:
            yield f"model_store.{key}", f"{value} is too much for {store.sku}; allowed: up to {most}"
    iops, mbps = store.iops or PREMIUM_V2_BASELINE_IOPS, store.mbps or PREMIUM_V2_BASELINE_MBPS
    if store.sku is DiskSku.PREMIUM_V2 and mbps > iops * PREMIUM_V2_MBPS_PER_IOPS:
        yield (
            "model_store.mbps",
            f"{mbps} needs at least {int(mbps / PREMIUM_V2_MBPS_PER_IOPS)} IOPS "
            f"(0.25 MB/s for each), model_store.iops is {iops}",
        )


def _models(settings: Settings, catalogue: Mapping[str, str]) -> Findings:
    serving, count = settings.serving, settings.nodes.count
    unknown = [name for name in serving.models if name not in catalogue]
    for name in unknown:
        close = difflib.get_close_matches(name, catalogue, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        yield (
            f"serving.models.{name}",
            f"is not in the model registry; {hint}allowed: {', '.join(sorted(catalogue))}",
        )
    if unknown:
        return  # which engine a node would run is a question for known models only
    engines: dict[int, set[str]] = {number: set() for number in range(1, count + 1)}
    for name, placement in serving.models.items():
        for number in placement.nodes if placement.nodes is not None else engines:
            if number not in engines:
                yield f"serving.models.{name}.nodes", f"{number} is not a node; allowed: 1-{count}"
            else:
                engines[number].add(catalogue[name])
    for number, names in engines.items():
        if len(names) != 1:
            what = f"{len(names)} models ({', '.join(sorted(names))})" if names else "no model"
            yield "serving.models", f"node {number} has {what}; allowed: exactly one base model on each node"
    bases = {catalogue[name] for name in serving.models}
    if serving.topology is Topology.DISTRIBUTED and (len(bases) != 1 or count < 2):
        yield (
            "serving.topology",
            f"'distributed' spreads one model over at least two nodes; this stack has {len(bases)} models "
            f"and {count} nodes; use `replicas`",
        )


def _ports(settings: Settings, _: Mapping[str, str]) -> Findings:
    own = {f"serving.ports.{key}": value for key, value in settings.serving.ports.model_dump().items()}
    if settings.jupyter.enabled:
        own["jupyter.port"] = settings.jupyter.port
    taken: dict[int, str] = {}
    for key, port in own.items():
        if port in taken:
            yield key, f"{port} is already {taken[port]}; every service needs a port of its own"
        taken[port] = key
    for key, port in own.items():
        for name, first, last in ports.FIXED_PORTS:
            if first <= port <= last:
                span = str(first) if first == last else f"{first}-{last}"
                yield key, f"{port} is taken by {name} ({span}); choose another"


def _access(settings: Settings, _: Mapping[str, str]) -> Findings:
    bastion = settings.access.bastion
    if bastion.tunnel and not bastion.sku.can_tunnel:
        yield "access.bastion.sku", f"'{bastion.sku}' can't tunnel; allowed with `tunnel: true`: Standard, Premium"


def _tags(settings: Settings, _: Mapping[str, str]) -> Findings:
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


def _admin(settings: Settings, _: Mapping[str, str]) -> Findings:
    name = settings.nodes.admin_username
    if name in DISALLOWED_ADMIN_NAMES:
        yield "nodes.admin_username", f"'{name}' is a login name that Azure refuses; choose another, such as azureuser"


def _lists(settings: Settings, _: Mapping[str, str]) -> Findings:
    """Lists whose items each become something of their own, so that none may stand twice."""
    lists: dict[str, Sequence[object]] = {
        "access.ssh_public_keys": settings.access.ssh_public_keys,
        "access.operator_object_ids": [guid.lower() for guid in settings.access.operator_object_ids],
        "network.reserved_ranges": settings.network.reserved_ranges,
        "monitoring.alert_emails": [email.lower() for email in settings.monitoring.alert_emails],
    }
    lists |= gateway_rules.lists(settings)
    for name, placement in settings.serving.models.items():
        lists[f"serving.models.{name}.nodes"] = placement.nodes or ()
    for key, items in lists.items():
        for item, count in Counter(items).items():
            if count > 1:
                yield key, f"'{item}' stands {count} times; list it once"


RULES: tuple[Callable[[Settings, Mapping[str, str]], Findings], ...] = (
    _target,
    _addresses,
    *gateway_rules.RULES,
    _size,
    _model_store,
    _models,
    _ports,
    _access,
    _tags,
    _admin,
    _lists,
)
