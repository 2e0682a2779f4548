"""What a stack on Azure may do, and whoever wrote it probably did not mean: sentences that begin with the setting."""

from __future__ import annotations

from collections.abc import Iterator

from plan.azure import regions
from plan.azure.model import AzurePlan
from plan.vocabulary import BastionSku, Delivery, Environment, Priority

EXAMPLE_KEY_COMMENT = "replace-this-example-key"
EXAMPLE_DOMAINS = ("example.com", "example.net", "example.org", "example")
"""Mail to these reaches nobody (RFC 2606)."""
LEAST_DAILY_CAP_GB = 0.023
"""Said to be Azure's least, by no page of Microsoft's: so no refusal (docs/facts/azure.md#daily-cap)."""


def of(plan: AzurePlan) -> Iterator[str]:
    """Every warning of a stack."""
    for warn in (_size, _spot, _keys, _mail, _ways_in, _daily_cap):
        yield from warn(plan)


def _size(plan: AzurePlan) -> Iterator[str]:
    size, priced = plan.compute.size.name, regions.SIZES.get(plan.compute.size.name)
    if priced and plan.location not in priced.names:
        yield (
            f"nodes.size: {size} had no price in {plan.location} on {priced.as_of}, so it is probably not offered there; "
            f"`az vm list-skus -l {plan.location} --size {size}` tells"
        )


def _spot(plan: AzurePlan) -> Iterator[str]:
    if plan.compute.priority is Priority.SPOT and plan.environment is Environment.PROD:
        yield "nodes.priority: Azure may evict spot nodes at any time, and environment is prod"


def _keys(plan: AzurePlan) -> Iterator[str]:
    for index, key in enumerate(plan.compute.ssh_public_keys):
        if key.endswith(EXAMPLE_KEY_COMMENT):
            yield f"access.ssh_public_keys[{index}] is the example key; nobody holds it"


def _mail(plan: AzurePlan) -> Iterator[str]:
    found = [("gateway.publisher_email", plan.gateway.publisher_email)] if plan.gateway.existing is None else []
    found += [("monitoring.alert_emails", address) for address in plan.monitoring.alert_emails]
    for key, address in found:
        domain = address.rpartition("@")[2].lower()
        if domain.endswith(tuple(f".{example}" for example in EXAMPLE_DOMAINS)) or domain in EXAMPLE_DOMAINS:
            yield f"{key}: {address} is an example; Azure's notices reach nobody"


def _ways_in(plan: AzurePlan) -> Iterator[str]:
    access = plan.access
    if access.delivery is Delivery.SSH:
        return
    if plan.jupyter.enabled and not (access.tunnel and access.bastion_sku.can_tunnel):
        yield (
            "jupyter.enabled: JupyterLab listens on loopback, and nothing forwards a port to it; "
            "set access.bastion to {sku: Standard, tunnel: true}"
        )
    if access.bastion_sku is BastionSku.NONE:
        yield (
            "access.ssh_public_keys: nothing lets operators in by SSH; set access.bastion.sku, "
            "or use `az vm run-command invoke`"
        )


def _daily_cap(plan: AzurePlan) -> Iterator[str]:
    cap = plan.monitoring.daily_cap_gb
    if cap < LEAST_DAILY_CAP_GB:
        yield f"monitoring.daily_cap_gb: {cap:g} is probably too little for Azure, which takes {LEAST_DAILY_CAP_GB} or more"
