"""VM sizes: vCPUs, quota family, data disks and NICs of the sizes that stacks use, and a guess for the others.

Facts: docs/facts/azure.md#vm-sizes, docs/facts/azure.md#quota-families.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Size:
    """One VM size."""

    vcpus: int
    family: str
    max_data_disks: int
    max_nics: int
    accelerated_networking: bool = True


SIZES: Final[dict[str, Size]] = {
    "standard_nc40ads_h100_v5": Size(40, "StandardNCadsH100v5Family", 8, 2),
    "standard_nc80adis_h100_v5": Size(80, "StandardNCadsH100v5Family", 16, 4),
    "standard_ncc40ads_h100_v5": Size(40, "StandardNCCads2023Family", 8, 8, accelerated_networking=False),
    "standard_nd96isr_h100_v5": Size(96, "standardNDSH100v5Family", 32, 8),
    "standard_nd96isr_h200_v5": Size(96, "standardNDISRH200V5Family", 16, 8),
    "standard_l8s_v3": Size(8, "standardLSv3Family", 16, 4),
}
_NUMBER: Final = re.compile(r"^Standard_[A-Z]+(\d+)", re.IGNORECASE)
_FAMILY: Final = re.compile(r"^Standard_([A-Z]+)\d+([a-z]*)(?:_[A-Z]\d+)?(?:_(v\d+))?$", re.IGNORECASE)


def size_of(name: str) -> Size | None:
    """A listed size."""
    return SIZES.get(name.lower())


def exists(name: str) -> bool:
    """Listed, or named like a size."""
    return size_of(name) is not None or _NUMBER.match(name) is not None


def vcpus_of(name: str) -> int:
    """vCPUs: listed, else the number in the name."""
    size = size_of(name)
    if size:
        return size.vcpus
    found = _NUMBER.match(name)
    return int(found.group(1)) if found else 0


def family_of(name: str) -> str:
    """Quota family: listed, else put together from the name as Azure does for most families."""
    size = size_of(name)
    if size:
        return size.family
    found = _FAMILY.match(name)
    return f"standard{found.group(1)}{found.group(2)}{found.group(3) or ''}Family" if found else "unknownFamily"
