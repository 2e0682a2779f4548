"""A subscription's lists as ARM's HTTP API gives them, and purging what is soft-deleted."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from simulator.azure.errors import ArmError
from simulator.azure.rules.compute.sizes import SIZES
from simulator.azure.state.store import Deleted, Resource, State

_GROUP: Final = "resources:ResourceGroup"
_GRANT: Final = "authorization:RoleAssignment"
_SOFT_DELETED: Final = {"deletedservices": "apimanagement:ApiManagementService", "deletedvaults": "keyvault:Vault"}
_PURGE: Final = re.compile(
    r"/subscriptions/[^/]+/providers/Microsoft\.(?P<provider>ApiManagement|KeyVault)/locations/(?P<location>[^/]+)/"
    r"(?P<kind>deletedservices|deletedvaults)/(?P<name>[^/]+)(?P<action>/purge)?",
    re.IGNORECASE,
)
_TOP_LEVEL: Final = re.compile(
    r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/(?P<type>[^/]+/[^/]+)/[^/]+", re.IGNORECASE
)
_METHODS: Final = {"deletedservices": ("DELETE", False), "deletedvaults": ("POST", True)}


def items(state: State, path: str) -> list[dict[str, Any]] | None:
    """What a list below `/subscriptions/ID` holds; None when the path is no list that is imitated."""
    found = re.fullmatch(r"/subscriptions/[^/]+/(?:providers/Microsoft\.\w+/)?(\w+)", path, re.IGNORECASE)
    listed = _LISTS.get(found[1].lower()) if found else None
    return listed(state) if listed else None


def answer(state: State, method: str, path: str) -> tuple[int, dict[str, Any]] | None:
    """Forget a soft-deleted service or vault; status and body of the answer, None when the request is no purge.

    Raises:
        ArmError: nothing of that name is soft-deleted there, or it is protected.
    """
    found = _PURGE.fullmatch(path)
    if found is None or _METHODS[found["kind"].lower()] != (method, found["action"] is not None):
        return None
    wanted = _SOFT_DELETED[found["kind"].lower()]
    for item in state.deleted:
        if _is(item, wanted) and item.name.lower() == found["name"].lower() and item.location == found["location"]:
            if item.purge_protected:
                raise ArmError(
                    403, "DeletedVaultPurge", f"Operation 'DeletedVaultPurge' is not allowed on {item.name}."
                )
            state.forget(item)
            return 202, {}
    raise ArmError(404, "ResourceNotFound", f"'{found['name']}' is not soft-deleted in {found['location']}.")


def _groups(state: State) -> list[dict[str, Any]]:
    return [_shown(each, "Microsoft.Resources/resourceGroups") for each in state.of_type(_GROUP)]


def _resources(state: State) -> list[dict[str, Any]]:
    """Top-level resources; those within others, and those that extend others, are in no such list."""
    found = ((each, _TOP_LEVEL.fullmatch(each.id)) for each in state.resources.values())
    return [_shown(each, match["type"]) for each, match in found if match]


def _grants(state: State) -> list[dict[str, Any]]:
    return [
        {"id": each.id, "name": each.name, "properties": {"scope": each.properties.get("scope")}}
        for each in state.of_type(_GRANT)
    ]


def _providers(state: State) -> list[dict[str, Any]]:
    """Those of the resources, and Microsoft.Web, which a gateway's subnet is lent to: all are registered here."""
    used = {
        found["type"].partition("/")[0] for each in state.resources.values() if (found := _TOP_LEVEL.match(each.id))
    }
    return [{"namespace": each, "registrationState": "Registered"} for each in sorted(used | {"Microsoft.Web"})]


def _skus(_: State) -> list[dict[str, Any]]:
    """Sizes without what they can do: that is Azure's to say."""
    return [{"resourceType": "virtualMachines", "name": name, "capabilities": []} for name in sorted(SIZES)]


def _deleted(kind: str) -> Callable[[State], list[dict[str, Any]]]:
    def listed(state: State) -> list[dict[str, Any]]:
        return [_buried(each) for each in state.deleted if _is(each, _SOFT_DELETED[kind])]

    return listed


_LISTS: Final[Mapping[str, Callable[[State], list[dict[str, Any]]]]] = {
    "resourcegroups": _groups,
    "resources": _resources,
    "roleassignments": _grants,
    "providers": _providers,
    "skus": _skus,
    **{kind: _deleted(kind) for kind in _SOFT_DELETED},
}


def _is(item: Deleted, key: str) -> bool:
    return item.token.endswith(f":{key}")


def _shown(item: Resource, arm_type: str) -> dict[str, Any]:
    tags = item.properties.get("tags") or {}
    return {"id": item.id, "name": item.name, "location": item.location, "type": arm_type, "tags": tags}


def _buried(item: Deleted) -> dict[str, Any]:
    free = datetime.datetime.fromtimestamp(item.purge_at, datetime.UTC).isoformat()
    said = {"scheduledPurgeDate": free, "location": item.location}
    protected = {"purgeProtectionEnabled": True} if item.purge_protected else {}
    return {"name": item.name, "location": item.location, "properties": {**said, **protected}}
