"""What Azure offers where: regions, zones, tiers, disks outside zones, and the time zones of its schedules."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plan import azure_regions
from plan import azure_time_zones as time_zones
from plan.azure_facts import VM_SIZES
from plan.settings.azure import LOCATION_KEY
from plan.vocabulary import GatewayTier
from tests.unit.stack_values import fault, plan

KNOWN = azure_regions.load()
V2 = {"sku": "PremiumV2_LRS"}
DEVELOPER = {"tier": "Developer"}


@pytest.mark.parametrize(
    ("region", "expected"),
    [
        ("atlantis", "'atlantis' is no Azure region that this program knows; `az account list-locations` shows them"),
        ("East US 2", "'East US 2' is no Azure region that this program knows; did you mean eastus2?"),
        ("westeurop", "did you mean westeurope?"),
        ("EASTUS", "did you mean eastus?"),
        ("chinanorth3", "'chinanorth3' is a region of Azure China; allowed: regions of Azure's public cloud"),
        ("usgovvirginia", "'usgovvirginia' is a region of Azure Government"),
    ],
)
def test_a_wrong_region_gives_one_sentence(region: str, expected: str) -> None:
    found = fault(**{LOCATION_KEY: region})
    assert found.key == LOCATION_KEY
    assert expected in found.message


@pytest.mark.parametrize(
    ("region", "changes", "key", "expected"),
    [
        (
            "westus",
            {"nodes": {"zone": "1"}},
            "nodes.zone",
            "'1' can't be had: westus has no availability zones; remove it",
        ),
        (
            "eastus",
            {"gateway": {"tier": "PremiumV2"}},
            "gateway.tier",
            "'PremiumV2' is not offered in eastus (Microsoft's table of 2026-04-24; a newer one belongs in "
            "plan/data/azure_regions.yaml); allowed there: StandardV2, Developer, Premium",
        ),
        ("qatarcentral", {}, "gateway.tier", "allowed there: Developer, Premium"),
        ("eastus", {"model_store": V2}, "model_store.sku", "set nodes.zone (allowed: 1, 2, 3) or another sku"),
        (
            "koreasouth",
            {"model_store": V2, "gateway": DEVELOPER},
            "model_store.sku",
            "'PremiumV2_LRS' disks live in one zone, and koreasouth has none; use another sku",
        ),
        ("westus", {"model_store": {"sku": "UltraSSD_LRS"}}, "model_store.sku", "and westus has none"),
    ],
)
def test_what_a_region_lacks_is_refused(region: str, changes: dict[str, Any], key: str, expected: str) -> None:
    found = fault(**{LOCATION_KEY: region}, **changes)
    assert found.key == key
    assert expected in found.message


def test_what_a_region_has_is_taken() -> None:
    assert plan(**{LOCATION_KEY: "westus"}, model_store=V2).compute.zone is None  # the page on disks without a zone
    assert plan(**{LOCATION_KEY: "uksouth"}, nodes={"zone": 3}, model_store=V2).compute.zone == "3"
    gateway = {"id": "/subscriptions/8f0ac4f6-1c0e-4d4e-9f5b-0d3f5f2f0a01/resourceGroups/hub/providers/"
               "Microsoft.ApiManagement/service/ours", "subnet": "10.9.0.0/24"}  # fmt: skip
    assert plan(**{LOCATION_KEY: "qatarcentral"}, gateway={"existing": gateway}).location == "qatarcentral"


@given(region=st.sampled_from(sorted(KNOWN.public_cloud.names)), tier=st.sampled_from(GatewayTier))
def test_a_tier_is_refused_exactly_where_the_table_lacks_it(region: str, tier: GatewayTier) -> None:
    offered = KNOWN.gateway_tiers.get(tier)
    changes = {LOCATION_KEY: region, "gateway": {"tier": tier.value}}
    if offered is None or region in offered.names:
        assert plan(**changes).location == region
    else:
        assert fault(**changes).key == "gateway.tier"


def test_every_list_of_regions_holds_known_regions() -> None:
    lists = [KNOWN.without_zones, KNOWN.premium_ssd_v2_without_zone, *KNOWN.gateway_tiers.values()]
    for each in [*lists, *KNOWN.sizes.values()]:
        assert each.names <= KNOWN.public_cloud.names, each.names - KNOWN.public_cloud.names
        datetime.strptime(each.as_of, "%Y-%m-%d").replace(tzinfo=UTC)
    assert KNOWN.premium_ssd_v2_without_zone.names <= KNOWN.without_zones.names
    assert set(KNOWN.sizes) == set(VM_SIZES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Europe/Berlin", "W. Europe Standard Time"),
        ("Asia/Kolkata", "India Standard Time"),
        ("America/New_York", "Eastern Standard Time"),
        ("w. europe standard time", "W. Europe Standard Time"),
        ("Etc/UTC", "UTC"),
        ("UTC", "UTC"),
        # What nobody has seen Azure take is sent only where somebody wrote it (docs/facts/azure.md#time-zones).
        ("America/Vancouver", "US Mountain Standard Time"),
        ("America/Edmonton", "Canada Central Standard Time"),
        ("America/Winnipeg", "SA Pacific Standard Time"),
        ("Alberta Standard Time", "Alberta Standard Time"),
    ],
)
def test_a_time_zone_reaches_azure_as_its_windows_id(name: str, expected: str) -> None:
    assert plan(nodes={"auto_shutdown": {"timezone": name}}).compute.auto_shutdown.timezone == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("W. Europe Standrad Time", "'W. Europe Standrad Time' is no time zone; did you mean W. Europe Standard Time?"),
        ("Europe/Berlim", "did you mean W. Europe Standard Time?"),
        ("Mars/Olympus", "is no time zone; allowed: a Windows id such as W. Europe Standard Time, or an IANA name"),
    ],
)
def test_a_time_zone_that_is_none_gives_one_sentence(name: str, expected: str) -> None:
    found = fault(nodes={"auto_shutdown": {"timezone": name}})
    assert found.key == "nodes.auto_shutdown.timezone"
    assert expected in found.message


def test_names_of_one_windows_id_have_one_time() -> None:
    """This machine's own database of time zones is the judge; only of places whose rules are old."""
    groups: dict[str, set[tuple[object, ...]]] = {}
    for name in sorted(zoneinfo.available_timezones()):
        if name.startswith(("Europe/", "US/", "Asia/")) and (windows := time_zones.windows_id(name)):
            zone = zoneinfo.ZoneInfo(name)
            offsets = tuple(datetime(2026, month, 15, tzinfo=zone).utcoffset() for month in (1, 7))
            groups.setdefault(windows, set()).add(offsets)
    assert len(groups) > 50
    assert [windows for windows, offsets in groups.items() if len(offsets) > 1] == []
