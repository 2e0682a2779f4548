"""User-assigned identities and role assignments."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import re
import uuid
from typing import Any, Final

from simulator.azure.errors import bad_request, conflict
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource

GUID: Final = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", re.IGNORECASE)


@imitates("managedidentity:UserAssignedIdentity")
class UserAssignedIdentity(Rules):
    """Microsoft.ManagedIdentity/userAssignedIdentities."""

    typical_seconds = 5.0

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        born = str(op.old.created if op.old else op.now)
        outputs["principalId"] = str(uuid.UUID(derived(op.state.salt, op.id, born, "principal")))
        outputs["clientId"] = str(uuid.UUID(derived(op.state.salt, op.id, born, "client")))
        outputs["tenantId"] = op.tenant


@imitates("authorization:RoleAssignment")
class RoleAssignment(Rules):
    """Microsoft.Authorization/roleAssignments."""

    typical_seconds = 5.0

    def create(self, op: Op) -> None:
        if not GUID.match(op.name):
            raise bad_request(
                "InvalidRoleAssignmentId",
                f"The role assignment ID '{op.name}' is not valid. The role assignment ID must be a GUID.",
            )
        principal, role = str(op.inputs["principalId"]), str(op.inputs["roleDefinitionId"])
        if not GUID.match(principal):
            raise bad_request(
                "InvalidPrincipalId", f"A valid principal ID must be provided for role assignment: {principal}."
            )
        if "/roledefinitions/" not in role.lower() or not GUID.match(role.rsplit("/", 1)[-1]):
            raise bad_request("InvalidRoleDefinitionId", f"The role definition ID '{role}' is not valid.")
        for other in op.state.of_type("authorization:RoleAssignment"):
            if other.id.lower() != op.id.lower() and _triple(other) == _wanted(op):
                raise conflict("RoleAssignmentExists", "The role assignment already exists.")

    def update(self, op: Op) -> None:
        before = op.old.properties if op.old else {}
        if _role(str(op.inputs["roleDefinitionId"])) != _role(str(before.get("roleDefinitionId"))):
            raise bad_request(
                "RoleAssignmentUpdateNotPermitted",
                "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs.setdefault("principalType", "ServicePrincipal")
        outputs["createdOn"] = op.old.properties["createdOn"] if op.old else op.timestamp
        outputs["updatedOn"] = op.timestamp


def _role(definition: str) -> str:
    return definition.rsplit("/", 1)[-1].lower()


def _triple(assignment: Resource) -> tuple[str, str, str]:
    body = assignment.properties
    return _key(body.get("scope"), body.get("principalId"), body.get("roleDefinitionId"))


def _wanted(op: Op) -> tuple[str, str, str]:
    return _key(op.inputs["scope"], op.inputs["principalId"], op.inputs["roleDefinitionId"])


def _key(scope: Any, principal: Any, role: Any) -> tuple[str, str, str]:
    return str(scope).strip("/").lower(), str(principal).lower(), _role(str(role))


def holds_role(op: Op, principal: str, scope_id: str, roles: frozenset[str]) -> bool:
    """Has the principal one of these roles at the scope or above it, for so long that it counts?"""
    scope = scope_id.strip("/").lower()
    for assignment in op.state.of_type("authorization:RoleAssignment"):
        if assignment.created > op.now - op.role_delay_s:
            continue
        at, who, role = _triple(assignment)
        if who == principal.lower() and role in roles and (scope == at or scope.startswith(f"{at}/")):
            return True
    return False
