"""What Azure offers in which region, from data/azure_regions.yaml: facts with their dates, no decisions.

Sources: docs/facts/azure.md#regions, docs/facts/api-management.md#regions-of-the-v2-tiers.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from huddle import data_file
from plan.vocabulary import GatewayTier

FILE = "plan/data/azure_regions.yaml"
"""What a sentence names where the list may be too old."""
_PATH = Path(__file__).resolve().parent / "data" / "azure_regions.yaml"


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Dated(_Data):
    """Regions for which something held on a day."""

    as_of: str
    names: frozenset[str]


class Regions(_Data):
    """The whole file. `gateway_tiers` has the v2 tiers only, `sizes` regions with a public price."""

    public_cloud: Dated
    other_clouds: Mapping[str, frozenset[str]]
    without_zones: Dated
    premium_ssd_v2_without_zone: Dated
    gateway_tiers: Mapping[GatewayTier, Dated]
    sizes: Mapping[str, Dated]

    def other_cloud(self, name: str) -> str | None:
        """The cloud that a region belongs to, if it is not the public one."""
        return next((cloud for cloud, names in self.other_clouds.items() if name in names), None)

    def nearest(self, text: str) -> str | None:
        """The region that somebody may have meant: 'East US 2' is eastus2."""
        squeezed = re.sub(r"[^a-z0-9]", "", text.lower())
        return next(iter(difflib.get_close_matches(squeezed, sorted(self.public_cloud.names), n=1)), None)


@lru_cache(maxsize=1)
def load() -> Regions:
    """The regions that come with the program; raises InputError for a wrong file."""
    return data_file.load(_PATH, Regions)
