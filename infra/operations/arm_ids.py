"""ARM ids of what a stack makes, from its plan and a subscription: for commands that need no state of Pulumi's."""

from __future__ import annotations

from plan.azure.model import AzurePlan


def group(plan: AzurePlan, subscription: str) -> str:
    """The resource group."""
    return f"/subscriptions/{subscription}/resourceGroups/{plan.names.resource_group}"


def vm(plan: AzurePlan, subscription: str, node: str) -> str:
    """A node's VM."""
    return f"{group(plan, subscription)}/providers/Microsoft.Compute/virtualMachines/{node}"


def gateway(plan: AzurePlan, subscription: str) -> str:
    """The API Management service, ours or the one that was there."""
    existing = plan.gateway.existing
    ours = f"{group(plan, subscription)}/providers/Microsoft.ApiManagement/service/{plan.gateway.name}"
    return existing.id if existing else ours
