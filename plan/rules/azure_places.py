"""Rules about what Azure offers where: the region, its zones, gateway tiers and disks; and the schedule's time zone."""

from __future__ import annotations

from collections.abc import Callable

from plan import azure_regions as regions
from plan import azure_time_zones as time_zones
from plan.azure_facts import SHARED_DISKS
from plan.rules.service import Findings, Known
from plan.settings.azure import LOCATION_KEY, AzureSettings
from plan.vocabulary import DiskSku, ModelStoreKind


def _region(settings: AzureSettings, _: Known) -> Findings:
    region = settings.location
    if not region:
        yield LOCATION_KEY, f"is required: {AzureSettings.model_fields['location'].description}"
    elif cloud := regions.other_cloud(region):
        yield LOCATION_KEY, f"'{region}' is a region of {cloud}; allowed: regions of Azure's public cloud"
    elif region not in regions.REGIONS.names:
        near = regions.nearest(region)
        hint = f"did you mean {near}?" if near else "`az account list-locations` shows them, eastus2 is one"
        yield (
            LOCATION_KEY,
            f"'{region}' is no Azure region that this program knows; {hint} "
            f"(a region newer than {regions.REGIONS.as_of} belongs in {regions.FILE})",
        )


def _zone(settings: AzureSettings, _: Known) -> Findings:
    zone, region = settings.nodes.zone, settings.location
    if zone is not None and region in regions.WITHOUT_ZONES.names:
        yield "nodes.zone", f"'{zone}' can't be had: {region} has no availability zones; remove it"


def _zonal_disk(settings: AzureSettings, _: Known) -> Findings:
    store, region = settings.model_store, settings.location
    if store.kind is not ModelStoreKind.SHARED_DISK or not SHARED_DISKS[store.sku].zonal_only:
        return
    if region not in regions.WITHOUT_ZONES.names:
        if settings.nodes.zone is None:
            yield (
                "model_store.sku",
                f"'{store.sku}' disks live in one zone; set nodes.zone (allowed: 1, 2, 3) or another sku",
            )
    elif store.sku is not DiskSku.PREMIUM_V2 or region not in regions.PREMIUM_V2_WITHOUT_ZONE.names:
        yield "model_store.sku", f"'{store.sku}' disks live in one zone, and {region} has none; use another sku"


def _tier(settings: AzureSettings, _: Known) -> Findings:
    tier, region = settings.gateway.tier, settings.location
    offered = regions.V2_TIERS.get(tier)
    if settings.gateway.existing or offered is None or region not in regions.REGIONS.names or region in offered.names:
        return
    others = [other.value for other, places in regions.V2_TIERS.items() if region in places.names]
    yield (
        "gateway.tier",
        f"'{tier}' is not offered in {region} (Microsoft's table of {offered.as_of}; a newer one belongs in "
        f"{regions.FILE}); allowed there: {', '.join([*others, 'Developer', 'Premium'])}",
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
