"""What a stack costs a month at list prices, item by item. What has no verified price is named, never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from rich import box
from rich.console import Console
from rich.table import Table

from huddle import data_file
from plan.azure.model import AzurePlan
from plan.vocabulary import BastionSku, DiskSku, GatewayTier, ModelStoreKind, Priority

HOURS_PER_MONTH = 730
"""Azure's own convention for monthly figures (8760 hours a year, divided by 12)."""
_PRICES = Path(__file__).resolve().parent / "data" / "prices.yaml"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NetworkPrices(_Data):
    """USD a month for one of each; data transfer is extra."""

    nat_gateway: float
    public_ip: float
    private_endpoint: float
    bastion: Mapping[BastionSku, float]


class Prices(_Data):
    """infra/reports/data/prices.yaml: what was verified, where and when."""

    as_of: date
    source: str
    vm_usd_per_hour: Mapping[str, Mapping[str, float]]
    reference_region: str
    gateway_usd_per_unit_month: Mapping[GatewayTier, float]
    disk_usd_per_month: Mapping[DiskSku, Mapping[int, float]]
    network_usd_per_month: NetworkPrices
    files_usd_per_gib_month: float


@dataclass(frozen=True)
class Item:
    """One line of the estimate. `usd_per_month` is None where no price is known; `basis` then says why."""

    name: str
    detail: str
    usd_per_month: float | None
    basis: str


@dataclass(frozen=True)
class Estimate:
    """The whole month. The total covers the priced items only: it is a floor while anything is unpriced."""

    stack: str
    region: str
    as_of: date
    items: tuple[Item, ...]
    notes: tuple[str, ...]

    @property
    def priced(self) -> tuple[Item, ...]:
        """Items with a verified price."""
        return tuple(item for item in self.items if item.usd_per_month is not None)

    @property
    def unpriced(self) -> tuple[Item, ...]:
        """Items that cost something we can't state."""
        return tuple(item for item in self.items if item.usd_per_month is None)

    @property
    def total_usd_per_month(self) -> float:
        """Sum of the priced items (USD a month)."""
        return round(sum(item.usd_per_month or 0.0 for item in self.items), 2)

    @property
    def complete(self) -> bool:
        """Whether every item has a price."""
        return not self.unpriced


@lru_cache(maxsize=1)
def load_prices() -> Prices:
    """The prices that come with the program; raises InputError for a wrong file."""
    return data_file.load(_PRICES, Prices)


def estimate(plan: AzurePlan, prices: Prices | None = None) -> Estimate:
    """Price a plan: pay-as-you-go, every hour of the month."""
    prices = prices or load_prices()
    items = (
        *_nodes(plan, prices),
        *_model_store(plan, prices),
        *_gateway(plan, prices),
        *_network(plan, prices),
        *_by_use(plan),
    )
    return Estimate(plan.stack, plan.location, prices.as_of, items, tuple(_notes(plan, prices)))


def _nodes(plan: AzurePlan, prices: Prices) -> Iterator[Item]:
    count, size = len(plan.nodes), plan.compute.size
    detail = f"{count} x {size.name}"
    hourly = prices.vm_usd_per_hour.get(size.name, {}).get(plan.location)
    if plan.compute.priority is Priority.SPOT:
        yield Item("Nodes", detail, None, "spot prices move by the hour and were never verified")
    elif hourly is None:
        yield Item("Nodes", detail, None, f"no verified price for this size in {plan.location}")
    else:
        total = round(count * hourly * HOURS_PER_MONTH, 2)
        yield Item("Nodes", detail, total, f"{hourly:g} USD/h each in {plan.location}")
    yield Item("OS disks", f"{count} x {plan.compute.os_disk_gib} GiB", None, "no verified price for this disk size")


def _model_store(plan: AzurePlan, prices: Prices) -> Iterator[Item]:
    store = plan.store
    if store.kind is ModelStoreKind.AZURE_FILES:
        rate = prices.files_usd_per_gib_month
        yield Item("Model store", f"{store.size_gib} GiB NFS", round(store.size_gib * rate, 2), f"{rate:g} USD/GiB")
        return
    detail = f"{store.size_gib} GiB {store.sku}"
    price = prices.disk_usd_per_month.get(store.sku, {}).get(store.size_gib)
    if price is None:
        yield Item("Model disk", detail, None, "no verified price for this SKU and size")
    else:
        yield Item("Model disk", detail, price, "per disk; operations are extra")
    if len(plan.nodes) > 1 and store.sku not in (DiskSku.PREMIUM_V2, DiskSku.ULTRA):
        yield Item(
            "Shared mounts", f"{len(plan.nodes) - 1} beyond the first", None, "no verified price for an extra mount"
        )


def _gateway(plan: AzurePlan, prices: Prices) -> Iterator[Item]:
    if plan.gateway.existing is not None:
        return  # paid by whoever keeps it
    tier, units = plan.gateway.facts.tier, plan.gateway.units
    detail = f"{units} x {tier} unit"
    price = prices.gateway_usd_per_unit_month.get(tier)
    if price is None:
        yield Item("API Management", detail, None, f"sources disagree on the price of {tier}")
    else:
        yield Item("API Management", detail, round(units * price, 2), f"{price:g} USD/unit")


def _network(plan: AzurePlan, prices: Prices) -> Iterator[Item]:
    rates, sku = prices.network_usd_per_month, plan.access.bastion_sku
    yield Item("NAT gateway", "1, idle", rates.nat_gateway, "data is extra")
    yield Item("NAT address prefix", "1", None, "billed for each address it holds; not verified")
    addresses = int(plan.has_bastion_subnet) + int(plan.gateway.has_public_address)
    if addresses:
        total = round(addresses * rates.public_ip, 2)
        yield Item("Public addresses", f"{addresses}", total, f"{money(rates.public_ip)} each")
    endpoints = len(plan.network.private_links)
    yield Item(
        "Private endpoints",
        f"{endpoints}",
        round(endpoints * rates.private_endpoint, 2),
        f"{money(rates.private_endpoint)} each; data is extra",
    )
    if sku is not BastionSku.NONE:
        price = rates.bastion.get(sku)
        basis = f"no verified price for {sku}" if price is None else "billed until deleted"
        yield Item("Bastion", str(sku), price, basis)


def _by_use(plan: AzurePlan) -> Iterator[Item]:
    cap = plan.monitoring.daily_cap_gb
    yield Item("Log Analytics", f"at most {cap:g} GB a day", None, "billed by ingestion; not verified")
    asked, series = "a metric of each VM", "VM"
    if not plan.gateway.existing:
        asked, series = f"log queries every 5 minutes, {asked}", "VM, node and product"
    yield Item("Alert rules", asked, None, f"no verified price; each {series} that is told by itself counts")
    yield Item("Key Vault, DNS, traffic", "by use", None, "billed by use")


def _notes(plan: AzurePlan, prices: Prices) -> Iterator[str]:
    yield f"List prices of {prices.as_of.isoformat()} (pay-as-you-go, Linux), {HOURS_PER_MONTH} hours a month."
    if plan.location != prices.reference_region:
        yield f"Gateway, disk and network prices are those of {prices.reference_region}."
    shutdown = plan.compute.auto_shutdown
    if shutdown.enabled:
        yield (
            f"Auto-shutdown deallocates the nodes at {shutdown.time[:2]}:{shutdown.time[2:]} {shutdown.timezone}; "
            "hours off are not billed for VMs, and this estimate does not count on them."
        )


def money(usd: float) -> str:
    """US dollars with cents: `$10,190.80`."""
    return f"${usd:,.2f}"


def headline(result: Estimate) -> str:
    """The total in a few words: `at least $10,230.95 a month`."""
    return f"{'' if result.complete else 'at least '}{money(result.total_usd_per_month)} a month"


def to_json(result: Estimate) -> dict[str, Any]:
    """For `--json`: amounts are USD a month."""
    return {
        "stack": result.stack,
        "region": result.region,
        "currency": "USD",
        "prices_as_of": result.as_of.isoformat(),
        "hours_per_month": HOURS_PER_MONTH,
        "total_usd_per_month": result.total_usd_per_month,
        "complete": result.complete,
        "items": [
            {"name": i.name, "detail": i.detail, "usd_per_month": i.usd_per_month, "basis": i.basis}
            for i in result.priced
        ],
        "not_priced": [{"name": i.name, "detail": i.detail, "why": i.basis} for i in result.unpriced],
        "notes": list(result.notes),
    }


def table(result: Estimate) -> Table:
    """For a terminal: priced items, then what is left out, then the notes as the caption."""
    made = Table(
        title=f"Cost of {result.stack} in {result.region}: {headline(result)}",
        caption="\n".join(result.notes),
        caption_justify="left",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    made.add_column("Item", no_wrap=True)
    made.add_column("What", overflow="fold")
    made.add_column("USD a month", justify="right", no_wrap=True)
    made.add_column("Basis")
    for item in result.priced:
        made.add_row(item.name, item.detail, f"{item.usd_per_month:,.2f}", item.basis)
    for item in result.unpriced:
        made.add_row(item.name, item.detail, "not priced", item.basis, style="dim")
    made.add_section()
    label = "Total" if result.complete else "Total, at least"
    made.add_row(label, "", f"{result.total_usd_per_month:,.2f}", "", style="bold")
    return made


def show(result: Estimate, console: Console) -> None:
    """Print the estimate as a table, in US dollars a month."""
    console.print(table(result))
