"""The whole plan for scripts (`infra plan --json`) and at a glance for a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from datetime import date
from enum import Enum
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from pydantic import BaseModel
from rich import box
from rich.console import Console, Group
from rich.table import Table

from plan.azure.gateway_model import GatewayProduct
from plan.azure.model import AzurePlan
from plan.model import FleetPlan


def to_json(plan: FleetPlan) -> dict[str, Any]:
    """Everything the plan says, as plain JSON values with sorted keys. Equal plans give equal JSON."""
    made: dict[str, Any] = jsonable(plan)
    if isinstance(plan, AzurePlan):
        names = plan.names
        derived = {
            "resource_group": names.resource_group,
            "vnet": names.vnet,
            "key_vault": names.key_vault,
            "gateway": names.gateway,
            "model_disk": names.model_disk,
        }
        made["names"] = dict(sorted({**made["names"], **derived}.items()))
    return made


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


def view(plan: FleetPlan, summary: Sequence[tuple[str, str]]) -> Group:
    """The target's summary and one line a node, for a terminal."""
    facts = Table(title=f"Plan of {plan.stack}", title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for topic, answer in summary:
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
    for product in plan.products:
        products.add_row(
            product.id,
            ", ".join(product.models),
            f"{product.requests_per_minute:,}",
            f"{product.tokens_per_minute:,}",
            f"{quota.tokens:,} {quota.period}" if (quota := product.token_quota) else "none",
            "needed" if isinstance(product, GatewayProduct) and product.approval_required else "none",
            ", ".join(each.name for each in product.subscriptions) or "none",
        )
    return Group(facts, nodes, products)


def show(plan: FleetPlan, summary: Sequence[tuple[str, str]], console: Console) -> None:
    """Print the plan as tables for a terminal."""
    console.print(view(plan, summary))
