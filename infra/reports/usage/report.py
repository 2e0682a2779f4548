"""`infra usage`: what each product's tokens cost. Combines prices and rates; `bill` divides the cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cloud_init.bundle.services import serves
from huddle import planner, registry
from huddle.errors import Fault, InputError
from infra.reports import cost
from infra.reports.usage.bill import Bill, Capacity, Rate, TokenUse, base_of, rate_of, settle
from plan.azure.model import AzurePlan
from plan.vocabulary import Topology

NODES = "Nodes"
LONGEST_H = 8_784
"""Hours of a leap year: no bill covers more."""


def bill(plan: AzurePlan, uses: Sequence[TokenUse], hours: float, *, file: str) -> Bill:
    """Settle `hours` hours in which all nodes of the plan ran.

    Raises:
        InputError: the nodes have no GPU or no verified price, or the hours are none, or more than a year's.
    """
    if plan.head.hardware.on_cpu:
        raise InputError(Fault(file, "nodes.size", f"{plan.compute.size.name} has no GPU, so no token's time is known"))
    if not 0 < hours <= LONGEST_H:
        allowed = f"more than 0, up to {LONGEST_H} (a year)"
        raise InputError(Fault("--hours", "", f"{hours:g} is not allowed; allowed: {allowed}"))
    return settle(uses, rates(plan), capacity(plan, hours, file))


def capacity(plan: AzurePlan, hours: float, file: str) -> Capacity:
    """Engines, their hours and what nodes and the rest of the platform cost in that time, at list prices.

    Raises:
        InputError: the nodes' size has no known price.
    """
    estimate = cost.estimate(plan)
    nodes = next(item for item in estimate.items if item.name == NODES)
    if nodes.usd_per_month is None:
        raise InputError(Fault(file, "nodes.size", f"can't be charged: {nodes.basis}"))
    part = hours / cost.HOURS_PER_MONTH
    platform = sum(item.usd_per_month or 0.0 for item in estimate.items if item is not nodes)
    return Capacity(
        engines=sum(plan.serving.replicas(node.model) for node in plan.nodes if serves(plan, node)),
        hours=hours,
        gpu_cents=round(nodes.usd_per_month * part * 100),
        platform_cents=round(platform * part * 100),
    )


def rates(plan: AzurePlan) -> dict[str, Rate]:
    """Each product's seconds a token, from the planner's figures for the engine that serves it."""
    models, bases = registry.load().models, {model.name: model.base for model in plan.serving.models}
    nodes = len(plan.nodes) if plan.serving.topology is Topology.DISTRIBUTED else 1
    size = plan.compute.size
    known: dict[str, Rate] = {}
    for base in sorted(set(bases.values())):
        fit = planner.check(models[base], gpu=size.gpu, gpus_per_node=size.gpus, nodes=nodes, fabric=size.fabric)
        known[base] = rate_of(fit.replica)
    return {product: known[base] for product, base in base_of(plan.gateway, bases).items()}


def to_json(plan: AzurePlan, settled: Bill, hours: float) -> dict[str, Any]:
    """For scripts; amounts are USD."""
    return {
        "stack": plan.stack,
        "currency": "USD",
        "hours": hours,
        "complete": cost.estimate(plan).complete,
        "utilization": round(settled.utilization, 4),
        "overrun": round(settled.overrun, 4),
        "products": {product: cents / 100 for product, cents in sorted(settled.by_product.items())},
        "subscriptions": [
            {
                "product": share.use.product,
                "subscription": share.use.subscription,
                "prompt_tokens": share.use.prompt_tokens,
                "completion_tokens": share.use.completion_tokens,
                "engine_seconds": round(share.busy_s, 1),
                "usd": share.cents / 100,
            }
            for share in settled.shares
        ],
        "idle_usd": settled.idle_cents / 100,
        "platform_usd": settled.platform_cents / 100,
        "total_usd": settled.total_cents / 100,
    }


def show(plan: AzurePlan, settled: Bill, hours: float, console: Console) -> None:
    """Print the bill as a table, to the cent."""
    console.print(table(plan, settled, hours))


def table(plan: AzurePlan, settled: Bill, hours: float) -> Table:
    """One line a subscription, then what nobody used, then the platform's other costs."""
    known = {product.id for product in plan.gateway.products}
    at_least = "" if cost.estimate(plan).complete else " (at least)"
    made = Table(
        title=f"Usage of {plan.stack} in {hours:g} h: nodes {settled.utilization:.1%} busy",
        caption=escape("\n".join(_notes(settled, sorted({share.use.product for share in settled.shares} - known)))),
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    made.add_column("Product/subscription", overflow="fold")
    for heading in ("Prompt tokens", "Answer tokens", "USD", "per 1M"):
        made.add_column(heading, justify="right", no_wrap=True)
    for share in settled.shares:
        use = share.use
        each = f"{share.cents / 100 / use.tokens * 1e6:,.2f}" if use.tokens else ""
        tokens = (f"{use.prompt_tokens:,}", f"{use.completion_tokens:,}")
        made.add_row(escape(f"{use.product}/{use.subscription}"), *tokens, f"{share.cents / 100:,.2f}", each)
    made.add_section()
    made.add_row("Idle capacity", "", "", f"{settled.idle_cents / 100:,.2f}", "")
    made.add_row(f"Platform{at_least}", "", "", f"{settled.platform_cents / 100:,.2f}", "")
    made.add_row(f"Total{at_least}", "", "", f"{settled.total_cents / 100:,.2f}", "", style="bold")
    return made


def _notes(settled: Bill, unknown: Sequence[str]) -> list[str]:
    notes = ["Shares follow engine seconds by the planner's figures for a well-filled engine; list prices."]
    if unknown:
        notes.append(f"Not in the stack file, charged at the dearest rate: {', '.join(unknown)}.")
    if settled.overrun > 1:
        notes.append(
            f"The tokens needed {settled.overrun:.2f} times the hours by those figures; shares are scaled down."
        )
    return notes
