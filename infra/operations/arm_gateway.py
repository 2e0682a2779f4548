"""What Azure says about a gateway: products, subscriptions and their keys. Only `regenerate` writes.

Paths and actions are those of API Management's REST reference, at the version that the program's resources use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.operations import api_versions
from infra.operations.arm import Arm
from plan.vocabulary import KeyName


@dataclass(frozen=True)
class LiveProduct:
    """A product as it is in Azure."""

    id: str
    display_name: str


@dataclass(frozen=True)
class LiveSubscription:
    """A subscription as it is in Azure; `product` is None for one that opens an API or all of them."""

    sid: str
    display_name: str
    product: str | None
    state: str
    owner: str | None


@dataclass(frozen=True)
class Keys:
    """A subscription's keys. Their text never shows in a representation, and so in no log or trace."""

    primary: str = field(repr=False)
    secondary: str = field(repr=False)


def products(arm: Arm, gateway_id: str) -> Iterator[LiveProduct]:
    """All products of a gateway, whoever made them."""
    for item in arm.list(f"{gateway_id}/products", api_versions.GATEWAY):
        yield LiveProduct(str(item["name"]), str(_properties(item).get("displayName") or item["name"]))


def subscriptions(arm: Arm, gateway_id: str) -> Iterator[LiveSubscription]:
    """All subscriptions of a gateway, whoever made them."""
    for item in arm.list(f"{gateway_id}/subscriptions", api_versions.GATEWAY):
        properties = _properties(item)
        scope, owner = str(properties.get("scope") or ""), properties.get("ownerId")
        _, found, product = scope.rpartition("/products/")
        yield LiveSubscription(
            sid=str(item["name"]),
            display_name=str(properties.get("displayName") or item["name"]),
            product=product if found and product else None,
            state=str(properties.get("state") or ""),
            owner=str(owner).rpartition("/")[2] if owner else None,
        )


def keys(arm: Arm, gateway_id: str, sid: str) -> Keys:
    """Both keys of a subscription."""
    found = arm.act(f"{gateway_id}/subscriptions/{sid}", "listSecrets", api_versions.GATEWAY)
    return Keys(str(found["primaryKey"]), str(found["secondaryKey"]))


def regenerate(arm: Arm, gateway_id: str, sid: str, which: KeyName) -> None:
    """Replace one of the keys; the old one stops working everywhere within moments."""
    arm.act(f"{gateway_id}/subscriptions/{sid}", f"regenerate{which.capitalize()}Key", api_versions.GATEWAY)


def _properties(item: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = item.get("properties") or {}
    return found
