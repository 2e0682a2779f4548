"""Reads what the answers need. All that it does to Azure is in `trial`, and only where `trying`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from gateway_policies.entities import Entity
from huddle.errors import HuddleError
from infra.operations import api_versions, arm_ids, arm_subscription
from infra.operations.arm import Arm
from infra.proof import trial
from infra.proof.answers import SMALLEST_H100
from infra.proof.evidence import Body, Evidence, Reply, Unread
from plan.azure.model import AzurePlan
from plan.vocabulary import Delivery

T = TypeVar("T")
NOT_TRYING = Unread("`infra prove --try` asks this")
Ask = Callable[[], T]


def evidence(
    arm: Arm,
    plan: AzurePlan,
    subscription: str,
    *,
    sent_bytes: int,
    trying: bool,
    requests: Ask[tuple[Reply, ...]] | Unread = NOT_TRYING,
    drift: Ask[tuple[str, ...]] | Unread = NOT_TRYING,
) -> Evidence:
    """Ask Azure for everything; what it refuses is a reason, not an end."""
    root = f"/subscriptions/{subscription}"
    group = f"{arm_ids.group(plan, subscription)}/providers"
    vm, gateway = arm_ids.vm(plan, subscription, plan.head.name), arm_ids.gateway(plan, subscription)
    by_command = plan.access.delivery is Delivery.RUN_COMMAND
    without = Unread("this stack delivers over SSH")
    return Evidence(
        sent_bytes=sent_bytes if by_command else without,
        bastion=(
            _read(lambda: arm.get(f"{group}/Microsoft.Network/bastionHosts/{plan.names.bastion}", api_versions.NETWORK))
            if plan.has_bastion_subnet
            else Unread("this stack has no Bastion with a subnet")
        ),
        gateway=_read(lambda: arm.get(gateway, api_versions.GATEWAY)),
        backend_key=_read(
            lambda: arm.get(f"{gateway}/namedValues/{plan.gateway.entity_id(Entity.BACKEND_KEY)}", api_versions.GATEWAY)
        ),
        vm=_read(lambda: arm.get(vm, api_versions.COMPUTE)),
        image=_read(lambda: arm.get(_image(root, plan), api_versions.COMPUTE)),
        commands=_read(lambda: _commands(arm, vm)) if by_command else without,
        providers=_read(lambda: _providers(arm, root)),
        sizes=_read(lambda: _sizes(arm, root, plan.location)),
        locked=_read(lambda: tuple(arm_subscription.soft_deleted(arm, subscription))),
        trial=_read(lambda: trial.run(arm, vm, plan.location)) if trying else NOT_TRYING,
        replies=_read(requests),
        drift=_read(drift),
    )


def _read(ask: Ask[T] | Unread) -> T | Unread:
    """What comes of asking, or why nothing did."""
    if isinstance(ask, Unread):
        return ask
    try:
        return ask()
    except HuddleError as error:
        return Unread(str(error))


def _image(root: str, plan: AzurePlan) -> str:
    image = plan.compute.image
    return (
        f"{root}/providers/Microsoft.Compute/locations/{plan.location}/publishers/{image.publisher}/artifacttypes/vmimage"
        f"/offers/{image.offer}/skus/{image.sku}/versions/{image.version}"
    )


def _commands(arm: Arm, vm: str) -> Mapping[str, Body]:
    """The node's own commands with their last runs; a list tells no runs."""
    names = [str(one["name"]) for one in arm.list(f"{vm}/runCommands", api_versions.COMPUTE)]
    return {
        name: arm.get(f"{vm}/runCommands/{name}", api_versions.COMPUTE, expand="instanceView")
        for name in names
        if name.startswith("huddle-") and not name.startswith(trial.COMMAND)
    }


def _providers(arm: Arm, root: str) -> Mapping[str, str]:
    found = arm.list(f"{root}/providers", api_versions.RESOURCES)
    return {str(one["namespace"]).lower(): str(one.get("registrationState")) for one in found}


def _sizes(arm: Arm, root: str, location: str) -> Mapping[str, Mapping[str, str]]:
    """Capabilities (docs/facts/azure.md#what-sizes-can-do)."""
    found = arm.list(f"{root}/providers/Microsoft.Compute/skus", api_versions.SKUS, filter=f"location eq '{location}'")
    return {
        str(one["name"]): {str(each["name"]): str(each["value"]) for each in one.get("capabilities") or []}
        for one in found
        if one.get("resourceType") == "virtualMachines" and one.get("name") == SMALLEST_H100
    }
