"""References between resources: which ids a resource points at, and that they exist.

Azure refuses to create a resource that points at something missing, and to delete something that is pointed at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from simulator.azure.errors import ArmError
from simulator.azure.sdk.paths import ARM_ID
from simulator.azure.state.store import State
from simulator.plugin.values import dig, walk

if TYPE_CHECKING:
    from simulator.azure.rules.base import Op

# Ids that are not resources of the subscription, or that the subscription is not asked about.
_OUTSIDE: Final = re.compile(
    r"/providers/microsoft\.(authorization/(roledefinitions|policydefinitions)|compute/(locations|galleries)"
    r"|marketplace|security|capacity)/",
    re.IGNORECASE,
)
# Parts of a resource that have ids of their own: collection in the id → property that lists them.
_INLINE: Final = {
    "subnets": "subnets",
    "ipconfigurations": "ipConfigurations",
    "securityrules": "securityRules",
    "frontendipconfigurations": "frontendIPConfigurations",
    "backendaddresspools": "backendAddressPools",
    "probes": "probes",
}


def found_in(inputs: Mapping[str, Any]) -> list[str]:
    """Lower-case ids that occur as whole texts in the inputs."""
    return [item.lower() for item in _ids(inputs)]


def _ids(inputs: Mapping[str, Any]) -> list[str]:
    texts = [item for _, item in walk(inputs) if isinstance(item, str)]
    texts += [key for _, key in _keys(inputs)]
    return [item for item in texts if ARM_ID.match(item) and not _OUTSIDE.search(item)]


def _keys(value: Any) -> list[tuple[str, str]]:
    """Mapping keys that are ids (user-assigned identities are given that way)."""
    found: list[tuple[str, str]] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            if ARM_ID.match(key):
                found.append(("", key))
            found += _keys(item)
    elif isinstance(value, list):
        for item in value:
            found += _keys(item)
    return found


def exists(state: State, resource_id: str) -> bool:
    """A live resource, or a part that a live resource lists inline."""
    if state.get(resource_id) is not None:
        return True
    owner, _, tail = resource_id.rpartition("/")
    owner, _, collection = owner.rpartition("/")
    listing = _INLINE.get(collection.lower())
    resource = state.get(owner)
    if resource is None or listing is None:
        return False
    return any(str(part.get("name", "")).lower() == tail.lower() for part in dig(resource.properties, listing, []))


def require(op: Op) -> None:
    """Refuse inputs that point at something that is not there.

    Raises:
        ArmError: 400 InvalidResourceReference (network) or 404 ResourceNotFound (others).
    """
    for reference in _ids(op.inputs):
        own = reference.lower().startswith(f"{op.id.lower()}/") or reference.lower() == op.id.lower()
        # Resources of other subscriptions (a platform team's workspace, say) cannot be looked at.
        foreign = not reference.lower().startswith(f"/subscriptions/{op.subscription.lower()}/")
        if own or foreign or exists(op.state, reference):
            continue
        if op.schema.module == "network":
            raise ArmError(
                400,
                "InvalidResourceReference",
                f"Resource {reference} referenced by resource {op.id} was not found. Please make sure that the "
                "referenced resource exists, and that both resources are in the same region.",
            )
        raise ArmError(404, "ResourceNotFound", f"The Resource '{reference}' referenced by '{op.id}' was not found.")
