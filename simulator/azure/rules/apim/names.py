"""Names inside an API Management service: relative references and who uses what."""

from __future__ import annotations

import re
from typing import Any

from simulator.azure.errors import ArmError, bad_request
from simulator.azure.rules.base import Op
from simulator.azure.state.store import Resource, State

_SERVICE = re.compile(r"^(.*/providers/Microsoft\.ApiManagement/service/[^/]+)", re.IGNORECASE)


def service_of(resource_id: str) -> str:
    """The service's id in the id of anything inside it."""
    found = _SERVICE.match(resource_id)
    return found.group(1) if found else resource_id


def absolute(op: Op, reference: Any) -> str:
    """`/backends/x`, `backends/x` or a full id → full id."""
    text = str(reference)
    if text.lower().startswith("/subscriptions/") and "/providers/" in text.lower():
        return text
    return f"{service_of(op.id)}/{text.strip('/')}"


def relative(resource_id: str) -> str:
    """The part of an id after the service, as error texts show it."""
    return resource_id[len(service_of(resource_id)) :] or resource_id


def named_values_by_display_name(state: State, service_id: str) -> dict[str, Resource]:
    """Named values by lower-case display name, which is how policies call them."""
    return {
        str(resource.properties.get("displayName", "")).lower(): resource
        for resource in state.inside(service_id)
        if resource.key == "apimanagement:NamedValue"
    }


def used_by(op: Op, what: str) -> ArmError | None:
    """The refusal to delete something that policies, pools or diagnostics name (text as in Azure/apiops-cli#261)."""
    users = op.state.referrers(op.id, exclude_inside=op.id)
    if not users:
        return None
    listing = "".join(f"{relative(user.id)}\r\n" for user in users)
    return bad_request("ValidationError", f"{what} is used by the following entities:\r\n{listing}")
