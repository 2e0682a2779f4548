"""Rules about what Azure offers where: the region, its zones, gateway tiers and disks; and the schedule's time zone."""

from __future__ import annotations

from collections.abc import Callable

from plan import azure_regions
from plan import azure_time_zones as time_zones
from plan.azure_facts import SHARED_DISKS
from plan.rules.service import Findings, Known
from plan.settings.azure import LOCATION_KEY, AzureSettings
from plan.vocabulary import DiskSku, ModelStoreKind


def _region(settings: AzureSettings, _: Known) -> Findings:
    region, known = settings.location, azure_regions.load()
    if not region:
        yield LOCATION_KEY, f"is required: {AzureSettings.model_fields['location'].description}"
    elif cloud := known.other_cloud(region):
        yield LOCATION_KEY, f"'{region}' is a region of {cloud}; allowed: regions of Azure's public cloud"
    elif region not in known.public_cloud.names:
        near = known.nearest(region)
        hint = f"did you mean {near}?" if near else "`az account list-locations` shows them, eastus2 is one"
        yield (
            LOCATION_KEY,
            f"'{region}' is no Azure region that this program knows; {hint} "
            f"(a region newer than {known.public_cloud.as_of} belongs in {azure_regions.FILE})",
        )


def _zone(settings: AzureSettings, _: Known) -> Findings:
    zone, region = settings.nodes.zone, settings.location
    if zone is not None and region in azure_regions.load().without_zones.names:
        yield "nodes.zone", f"'{zone}' can't be had: {region} has no availability zones; remove it"


def _zonal_disk(settings: AzureSettings, _: Known) -> Findings:
    store, region, known = settings.model_store, settings.location, azure_regions.load()
    if store.kind is not ModelStoreKind.SHARED_DISK or not SHARED_DISKS[store.sku].zonal_only:
        return
    if region not in known.without_zones.names:
        if settings.nodes.zone is None:
            yield (
                "model_store.sku",
                f"'{store.sku}' disks live in one zone; set nodes.zone (allowed: 1, 2, 3) or another sku",
            )
    elif store.sku is not DiskSku.PREMIUM_V2 or region not in known.premium_ssd_v2_without_zone.names:
        yield "model_store.sku", f"'{store.sku}' disks live in one zone, and {region} has none; use another sku"


def _tier(settings: AzureSettings, _: Known) -> Findings:
    tier, region, known = settings.gateway.tier, settings.location, azure_regions.load()
    offered = known.gateway_tiers.get(tier)
    if settings.gateway.existing or offered is None or region not in known.public_cloud.names - offered.names:
        return
    others = [other.value for other, places in known.gateway_tiers.items() if region in places.names]
    yield (
        "gateway.tier",
        f"'{tier}' is not offered in {region} (Microsoft's table of {offered.as_of}; a newer one belongs in "
        f"{azure_regions.FILE}); allowed there: {', '.join([*others, 'Developer', 'Premium'])}",
    )


def _time_zone(settings: AzureSettings, _: Known) -> Findings:
    """Azure's schedules take Windows ids only; an IANA name becomes one in the plan."""
    name = settings.nodes.auto_shutdown.timezone
    if time_zones.windows_id(name) is None:
        near = time_zones.nearest(name)
        hint = f"did you mean {near}? " if near else ""
        yield (
            "nodes.auto_shutdown.timezone",
            f"'{name}' is no time zone; {hint}allowed: a Windows id such as W. Europe Standard Time, or an IANA name "
            "such as Europe/Berlin",
        )


RULES: tuple[Callable[[AzureSettings, Known], Findings], ...] = (_region, _zone, _zonal_disk, _tier, _time_zone)
