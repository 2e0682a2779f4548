"""The summary of a stack on Azure for `infra plan`."""

from __future__ import annotations

from cloud_init.bundle.environment import ENGINE_DRAIN_S
from infra.reports import cost
from plan import engines as plan_engines
from plan.azure.model import AzurePlan
from plan.vocabulary import BastionSku, ModelStoreKind, Segment, Topology


def summary(plan: AzurePlan) -> list[tuple[str, str]]:
    """What a person asks first, as (topic, answer)."""
    compute, gateway, access = plan.compute, plan.gateway, plan.access
    count, zone = len(plan.nodes), f", zone {compute.zone}" if compute.zone else ""
    hardware = f"{compute.size.gpus} x {compute.size.gpu}" if compute.size.gpus else "no GPU"
    shutdown = compute.auto_shutdown
    return [
        ("Stack", f"{plan.stack} ({plan.environment}) on {plan.target}, {plan.location}{zone}"),
        ("Resource group", plan.names.resource_group),
        ("Nodes", f"{count} x {compute.size.name} ({hardware}), {compute.priority}"),
        ("Image", f"{compute.image.publisher}:{compute.image.offer}:{compute.image.sku}:{compute.image.version}"),
        (
            "vCPUs",
            f"{count * compute.size.vcpus} needed of {compute.quota_vcpus} granted ({compute.quota_name})",
        ),
        ("Network", f"{plan.addresses.address_space}: {_subnets(plan)}"),
        ("Model store", _model_store(plan)),
        ("Serving", f"{plan.serving.topology}: {', '.join(model.name for model in plan.serving.models)}"),
        ("Engines", "; ".join(map(plan_engines.described, plan.serving.engines))),
        ("Updates", _updates(plan)),
        ("Gateway", _gateway(plan)),
        ("Products", ", ".join(product.id for product in gateway.products)),
        ("Key vault", plan.names.key_vault),
        ("Bastion", "none" if access.bastion_sku is BastionSku.NONE else f"{access.bastion_sku}"),
        ("JupyterLab", f"on the head, port {plan.jupyter.port}" if plan.jupyter.enabled else "off"),
        (
            "Auto-shutdown",
            f"{shutdown.time[:2]}:{shutdown.time[2:]} {shutdown.timezone}" if shutdown.enabled else "off",
        ),
        ("Cost", cost.headline(cost.estimate(plan))),
        ("Deletion", "data and gateway are protected" if plan.protect else "everything is destroyable"),
    ]


def _updates(plan: AzurePlan) -> str:
    """Who serves while another bundle is applied. A prompt is reloaded and takes nobody away."""
    several = len(plan.nodes) > 1
    if several and plan.serving.topology is Topology.REPLICAS:
        away = plan.serving.max_unavailable
        return f"{away} node{'s' if away > 1 else ''} away at a time (drain, engine's start), the others serve"
    starts = [engine.cold_start_s for engine in plan.serving.engines if engine.cold_start_s is not None]
    start = f" of about {max(starts)} s" if starts else ""
    who = "all nodes switch together" if several else "there is one node"
    return f"{who}: nobody is served for a drain of up to {ENGINE_DRAIN_S} s and the engine's start{start}"


def _gateway(plan: AzurePlan) -> str:
    gateway = plan.gateway
    drained = [backend.id for backend in gateway.backends if backend.drained]
    out = f"; drained: {', '.join(drained)}" if drained else ""
    if gateway.existing is not None:
        return f"{plan.gateway.name}, there already, calls from {plan.addresses.subnets[Segment.GATEWAY]}{out}"
    return f"{plan.gateway.name}, {gateway.units} x {gateway.facts.tier}, {gateway.inbound}{out}"


def _subnets(plan: AzurePlan) -> str:
    return ", ".join(f"{segment} {subnet}" for segment, subnet in plan.addresses.subnets.items())


def _model_store(plan: AzurePlan) -> str:
    store = plan.store
    if store.kind is ModelStoreKind.AZURE_FILES:
        return f"{store.size_gib} GiB Azure Files (NFS) at {plan.paths.models}"
    return f"{store.size_gib} GiB {store.sku}, shared by up to {store.max_shares}, at {plan.paths.models}"
