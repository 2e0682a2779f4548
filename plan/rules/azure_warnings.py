"""What a stack on Azure may do, and whoever wrote it probably did not mean: sentences that begin with the setting."""

from __future__ import annotations

from collections.abc import Iterator

from plan import azure_regions
from plan.azure_facts import VM_SIZES
from plan.settings.azure import AzureSettings
from plan.vocabulary import BastionSku, Delivery, Environment, Priority

EXAMPLE_KEY_COMMENT = "replace-this-example-key"
EXAMPLE_DOMAINS = ("example.com", "example.net", "example.org", "example")
"""Mail to these reaches nobody (RFC 2606)."""
LITTLE_DAILY_CAP_GB = 0.023
"""Users report this as Azure's least; no page of Microsoft's does, so less is not refused
(docs/facts/azure.md#daily-cap).
"""


def of(settings: AzureSettings) -> Iterator[str]:
    """Every warning of a stack, whether its rules hold or not."""
    for warn in (_size, _no_gpu, _spot, _keys, _mail, _ways_in, _daily_cap):
        yield from warn(settings)


def _size(settings: AzureSettings) -> Iterator[str]:
    size, region = settings.nodes.size, settings.location
    known = azure_regions.load()
    priced = known.sizes.get(size)
    if priced and region in known.public_cloud.names - priced.names:
        yield (
            f"nodes.size: {size} had no price in {region} on {priced.as_of}, so it is probably not offered there; "
            f"`az vm list-skus -l {region} --size {size}` tells"
        )


def _no_gpu(settings: AzureSettings) -> Iterator[str]:
    size = VM_SIZES.get(settings.nodes.size)
    if size is not None and size.gpus == 0:
        yield f"nodes.size: {size.name} has no GPU; it proves that everything works, and serves a few tokens a second"


def _spot(settings: AzureSettings) -> Iterator[str]:
    if settings.nodes.priority is Priority.SPOT and settings.environment is Environment.PROD:
        yield "nodes.priority: Azure may evict spot nodes at any time, and environment is prod"


def _keys(settings: AzureSettings) -> Iterator[str]:
    for index, key in enumerate(settings.access.ssh_public_keys):
        if key.endswith(EXAMPLE_KEY_COMMENT):
            yield f"access.ssh_public_keys[{index}] is the example key; nobody holds it"


def _mail(settings: AzureSettings) -> Iterator[str]:
    gateway = settings.gateway
    found = [("gateway.publisher_email", gateway.publisher_email)] if gateway.existing is None else []
    found += [("monitoring.alert_emails", address) for address in settings.monitoring.alert_emails]
    for key, address in found:
        domain = address.rpartition("@")[2].lower()
        if f".{domain}".endswith(tuple(f".{example}" for example in EXAMPLE_DOMAINS)):
            yield f"{key}: {address} is an example; Azure's notices reach nobody"


def _ways_in(settings: AzureSettings) -> Iterator[str]:
    bastion = settings.access.bastion
    if settings.access.delivery is Delivery.SSH:  # port 22 is open to the network
        return
    if settings.jupyter.enabled and not (bastion.tunnel and bastion.sku.can_tunnel):
        yield (
            "jupyter.enabled: JupyterLab listens on loopback, and nothing forwards a port to it; "
            "set access.bastion to {sku: Standard, tunnel: true}"
        )
    if bastion.sku is BastionSku.NONE:
        yield (
            "access.ssh_public_keys: nothing lets operators in by SSH; set access.bastion.sku, "
            "or use `az vm run-command invoke`"
        )


def _daily_cap(settings: AzureSettings) -> Iterator[str]:
    cap = settings.monitoring.daily_cap_gb
    if cap < LITTLE_DAILY_CAP_GB:
        yield (
            f"monitoring.daily_cap_gb: {cap:g} is probably too little for Azure, which is said to take "
            f"{LITTLE_DAILY_CAP_GB} or more"
        )
