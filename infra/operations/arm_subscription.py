"""What Azure says about a subscription: resources, role assignments, soft-deleted names. Only `purge` writes.

Paths are those of the REST references of Resource Manager, Authorization, API Management and Key Vault
(docs/facts/azure.md#what-a-subscription-lists).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import UNIQUE, StrEnum, verify
from typing import Any

from infra.operations import api_versions
from infra.operations.arm import Arm

GROUP_TYPE = "Microsoft.Resources/resourceGroups"


@dataclass(frozen=True)
class LiveResource:
    """A resource or a resource group; `type` as `Microsoft.Compute/virtualMachines`."""

    id: str
    type: str
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of its id."""
        return self.id.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The name of the resource group that holds it, or its own."""
        found = re.search(r"/resourceGroups/([^/]+)", self.id, re.IGNORECASE)
        return found[1] if found else ""


@dataclass(frozen=True)
class LiveGrant:
    """A role assignment at `scope`, an ARM id."""

    id: str
    scope: str


@verify(UNIQUE)
class Locked(StrEnum):
    """What keeps its name after its deletion."""

    GATEWAY = "soft-deleted gateway"
    VAULT = "soft-deleted key vault"


@dataclass(frozen=True)
class SoftDeleted:
    """A name that nobody can use before `free_on` (UTC), unless it is purged; `kept`: purging is refused."""

    kind: Locked
    name: str
    location: str
    free_on: datetime.date | None
    kept: bool = False


@dataclass(frozen=True)
class _Shelf:
    """Where a resource provider lists what is soft-deleted, and how it purges it."""

    provider: str
    collection: str
    api_version: str
    purge: tuple[str, str]  # HTTP method, and what follows the item's path


_SHELVES: Mapping[Locked, _Shelf] = {
    Locked.GATEWAY: _Shelf("Microsoft.ApiManagement", "deletedservices", api_versions.GATEWAY, ("DELETE", "")),
    Locked.VAULT: _Shelf("Microsoft.KeyVault", "deletedVaults", api_versions.KEY_VAULT, ("POST", "/purge")),
}


def resources(arm: Arm, subscription: str) -> Iterator[LiveResource]:
    """Every resource group, and every resource of every group."""
    for item in arm.list(f"/subscriptions/{subscription}/resourcegroups", api_versions.RESOURCES):
        yield LiveResource(str(item["id"]), GROUP_TYPE, item.get("tags") or {})
    for item in arm.list(f"/subscriptions/{subscription}/resources", api_versions.RESOURCES):
        yield LiveResource(str(item["id"]), str(item.get("type") or ""), item.get("tags") or {})


def grants(arm: Arm, subscription: str) -> Iterator[LiveGrant]:
    """Every role assignment in the subscription."""
    for item in arm.list(
        f"/subscriptions/{subscription}/providers/Microsoft.Authorization/roleAssignments", api_versions.AUTHORIZATION
    ):
        yield LiveGrant(str(item["id"]), str((item.get("properties") or {}).get("scope") or ""))


def soft_deleted(arm: Arm, subscription: str) -> Iterator[SoftDeleted]:
    """Every deleted gateway and key vault whose name is not free yet."""
    for kind, shelf in _SHELVES.items():
        path = f"/subscriptions/{subscription}/providers/{shelf.provider}/{shelf.collection}"
        for item in arm.list(path, shelf.api_version):
            said: Mapping[str, Any] = item.get("properties") or {}
            yield SoftDeleted(
                kind,
                name=str(item["name"]),
                location=str(item.get("location") or said.get("location") or ""),
                free_on=_day(said.get("scheduledPurgeDate")),
                kept=bool(said.get("purgeProtectionEnabled")),
            )


def purge(arm: Arm, subscription: str, found: SoftDeleted) -> None:
    """Ask Azure to forget it for good; its name is free some minutes later, when `soft_deleted` lists it no more.

    Raises:
        infra.operations.arm.ArmError: Azure refused or did not answer.
    """
    shelf = _SHELVES[found.kind]
    method, action = shelf.purge
    region = found.location.replace(" ", "").lower()
    path = (
        f"/subscriptions/{subscription}/providers/{shelf.provider}/locations/{region}/{shelf.collection}/{found.name}"
    )
    arm.send(method, f"{path}{action}", shelf.api_version)


def _day(text: object) -> datetime.date | None:
    try:
        return datetime.datetime.fromisoformat(str(text)).date()
    except ValueError:
        return None
