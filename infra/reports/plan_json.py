"""The whole plan for scripts (`infra plan --json`) and at a glance for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from datetime import date
from enum import Enum
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pydantic import BaseModel
from rich import box
from rich.console import Console, Group
from rich.table import Table

from infra.reports import cost
from plan.build_azure import Plan
from plan.vocabulary import BastionSku, ModelStoreKind, Zone


def to_json(plan: Plan) -> dict[str, Any]:
    """Everything the plan says, as plain JSON values with sorted keys. Equal plans give equal JSON."""
    names = plan.names
    derived = {
        "resource_group": names.resource_group,
        "vnet": names.vnet,
        "key_vault": names.key_vault,
        "gateway": names.gateway,
        "model_disk": names.model_disk,
    }
    made: dict[str, Any] = jsonable(plan)
    return {**made, "names": dict(sorted({**made["names"], **derived}.items()))}


def jsonable(value: Any) -> Any:
    """Plain JSON values for anything a plan holds: dataclasses, models, enums, addresses, mappings, tuples.

    Raises:
        TypeError: a value that no rule here covers; a new kind of field needs one.
    """
    match value:
        case Enum():
            return jsonable(value.value)
        case None | bool() | int() | float() | str():
            return value
        case IPv4Address() | IPv4Network() | date():
            return str(value)
        case BaseModel():
            return {name: jsonable(getattr(value, name)) for name in sorted(type(value).model_fields)}
        case Mapping():
            pairs = ((str(jsonable(key)), jsonable(item)) for key, item in value.items())
            return dict(sorted(pairs))
        case tuple() | list():
            return [jsonable(item) for item in value]
        case Set():
            return sorted(jsonable(item) for item in value)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = sorted(field.name for field in dataclasses.fields(value))
            return {name: jsonable(getattr(value, name)) for name in fields}
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def summary(plan: Plan) -> list[tuple[str, str]]:
    """What a person asks first, as (topic, answer)."""
    compute, gateway, access = plan.compute, plan.gateway, plan.access
    count, zone = len(plan.nodes), f", zone {compute.zone}" if compute.zone else ""
    shutdown = compute.auto_shutdown
    return [
        ("Stack", f"{plan.stack} ({plan.environment}) on {plan.target}, {plan.location}{zone}"),
        ("Resource group", plan.names.resource_group),
        ("Nodes", f"{count} x {compute.size.name} ({compute.size.gpus} x {compute.size.gpu}), {compute.priority}"),
        ("Image", f"{compute.image.publisher}:{compute.image.offer}:{compute.image.sku}:{compute.image.version}"),
        (
            "vCPUs",
            f"{count * compute.size.vcpus} needed of {compute.quota_vcpus} granted ({compute.size.quota_family})",
        ),
        ("Network", f"{plan.addresses.address_space}: {_subnets(plan)}"),
        ("Model store", _model_store(plan)),
        ("Serving", f"{plan.serving.topology}: {', '.join(model.name for model in plan.serving.models)}"),
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


def _gateway(plan: Plan) -> str:
    gateway = plan.gateway
    drained = [backend.id for backend in gateway.backends if backend.drained]
    out = f"; drained: {', '.join(drained)}" if drained else ""
    if gateway.existing is not None:
        return f"{plan.gateway.name}, there already, calls from {plan.addresses.subnets[Zone.GATEWAY]}{out}"
    return f"{plan.gateway.name}, {gateway.units} x {gateway.facts.tier}, {gateway.inbound}{out}"


def _subnets(plan: Plan) -> str:
    return ", ".join(f"{zone} {subnet}" for zone, subnet in plan.addresses.subnets.items())


def _model_store(plan: Plan) -> str:
    store = plan.model_store
    if store.kind is ModelStoreKind.AZURE_FILES:
        return f"{store.size_gib} GiB Azure Files (NFS) at {store.mount_path}"
    return f"{store.size_gib} GiB {store.sku}, shared by up to {store.max_shares}, at {store.mount_path}"


def view(plan: Plan) -> Group:
    """The summary and one line a node, for a terminal."""
    facts = Table(title=f"Plan of {plan.stack}", title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for topic, answer in summary(plan):
        facts.add_row(topic, answer)
    nodes = Table(title="Nodes", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("Name", "Role", "Address", "Base model", "Served as"):
        nodes.add_column(heading, no_wrap=heading == "Name")
    for node in plan.nodes:
        served = ", ".join(model.name for model in plan.serving.models if node.number in model.nodes)
        nodes.add_row(node.name, node.role, str(node.address), node.model, served)
    products = Table(title="Products", title_justify="left", box=box.SIMPLE_HEAD)
    for heading in ("Product", "Models", "Req/min", "Tokens/min", "Quota", "Approval", "Subscriptions"):
        products.add_column(heading, justify="right" if "/min" in heading else "left")
    for product in plan.gateway.products:
        products.add_row(
            product.id,
            ", ".join(product.models),
            f"{product.requests_per_minute:,}",
            f"{product.tokens_per_minute:,}",
            f"{quota.tokens:,} {quota.period}" if (quota := product.token_quota) else "none",
            "needed" if product.approval_required else "none",
            ", ".join(each.name for each in product.subscriptions) or "none",
        )
    return Group(facts, nodes, products)


def show(plan: Plan, console: Console) -> None:
    """Print the view."""
    console.print(view(plan))
