"""What Azure offers in which region, from data/azure_regions.yaml: facts with their dates, no decisions.

Sources: docs/facts/azure.md#regions, docs/facts/api-management.md#regions-of-the-v2-tiers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from plan.vocabulary import GatewayTier

FILE = "plan/data/azure_regions.yaml"
"""What a sentence names where the list may be too old."""
_DATA: Mapping[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "data" / "azure_regions.yaml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Dated:
    """Regions for which something held on a day."""

    names: frozenset[str]
    as_of: str


def _dated(key: str, names: str = "names") -> Dated:
    return Dated(frozenset(_DATA[key][names]), _DATA[key]["as_of"])


REGIONS = _dated("public_cloud")
WITHOUT_ZONES = _dated("without_zones")
PREMIUM_V2_WITHOUT_ZONE = _dated("premium_ssd_v2_without_zone")
V2_TIERS: Mapping[GatewayTier, Dated] = MappingProxyType(
    {tier: _dated("gateway_tiers", tier.value) for tier in (GatewayTier.STANDARD_V2, GatewayTier.PREMIUM_V2)}
)
"""Where each v2 tier is offered. Nothing says it of the classic tiers."""
SIZES: Mapping[str, Dated] = MappingProxyType(
    {size: _dated("sizes", size) for size in _DATA["sizes"] if size != "as_of"}
)
"""Where each VM size has a public price."""


def other_cloud(name: str) -> str | None:
    """The cloud that a region belongs to, if it is not the public one."""
    return next((cloud for cloud, names in _DATA["other_clouds"].items() if name in names), None)


def nearest(text: str) -> str | None:
    """The region that somebody may have meant: 'East US 2' is eastus2."""
    squeezed = re.sub(r"[^a-z0-9]", "", text.lower())
    return next(iter(difflib.get_close_matches(squeezed, sorted(REGIONS.names), n=1)), None)
