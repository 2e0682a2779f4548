"""What a fresh subscription, or a login with few rights, refuses (docs/facts/azure.md#providers-and-rights)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.azure.errors import ArmError
from simulator.azure.faults import Operation, Subscription
from simulator.azure.rules.base import Op
from simulator.azure.rules.network.subnets import delegations


def refusal(op: Op, subscription: Subscription) -> ArmError | None:
    """The first thing that the subscription does not have, or that who deploys may not do."""
    if op.key == "authorization:RoleAssignment" and not subscription.may_assign_roles:
        word = "delete" if op.kind is Operation.DELETE else "write"
        return _not_allowed(f"Microsoft.Authorization/roleAssignments/{word}", op.id)
    if op.kind is Operation.DELETE:
        return None
    missing = {namespace.lower(): namespace for namespace in subscription.unregistered}
    # Nobody calls the service that a subnet is lent to, so nobody registers it.
    needed = [*_lent_to(op), *([] if subscription.may_register else [op.path.arm_type])]
    for arm_type in needed:
        if namespace := missing.get(arm_type.partition("/")[0].lower()):
            return ArmError(
                409,
                "MissingSubscriptionRegistration",
                f"The subscription is not registered to use namespace '{namespace}'. See https://aka.ms/rps-not-found "
                "for how to register subscriptions.",
            )
    return None


def _lent_to(op: Op) -> Iterator[str]:
    bodies: dict[str, list[dict[str, Any]]] = {
        "network:VirtualNetwork": op.inputs.get("subnets") or [],
        "network:Subnet": [op.inputs],
    }
    for body in bodies.get(op.key, []):
        yield from sorted(delegations(body))


def _not_allowed(action: str, scope: str) -> ArmError:
    who = "the client with object id '00000000-0000-0000-0000-000000000000'"
    return ArmError(
        403,
        "AuthorizationFailed",
        f"{who.capitalize()} does not have authorization to perform action '{action}' over scope '{scope}' or the "
        "scope is invalid. If access was recently granted, please refresh your credentials.",
    )
