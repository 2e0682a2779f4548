"""What stacks left behind in a subscription: resources, role assignments and names that nobody counts on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from infra.operations.arm_subscription import GROUP_TYPE, LiveGrant, LiveResource, Locked, SoftDeleted
from plan.azure.model import AzurePlan
from plan.vocabulary import ManagedTag

GRANT = "role assignment"
_COSTLY = (
    "Microsoft.Compute/virtualMachines",
    "Microsoft.ApiManagement/service",
    "Microsoft.Network/bastionHosts",
    "Microsoft.Compute/disks",
    "Microsoft.Network/natGateways",
    "Microsoft.Network/publicIPAddresses",
)
"""What bills by the hour, in the order of its price. It is told first."""
_MADE_BY_AZURE = (
    "/microsoft.alertsmanagement/smartdetectoralertrules/",
    "/microsoft.insights/actiongroups/application insights smart detection",
    "/microsoft.compute/virtualmachines/[^/]+/extensions/",
)
"""Azure puts these beside Application Insights and into a VM by itself; they go with the group. Patterns of ids
(docs/facts/azure.md#what-a-subscription-lists).
"""


@dataclass(frozen=True)
class Owner:
    """A stack: how its resources are recognised, and `known`, every ARM id that its state mentions (lower case)."""

    plan: AzurePlan
    known: frozenset[str]

    def owns(self, resource: LiveResource) -> bool:
        """Whether tags or group say that this stack made it."""
        wanted = {ManagedTag.PROJECT.value: self.plan.project, ManagedTag.STACK.value: self.plan.stack}
        tagged = wanted.items() <= dict(resource.tags).items()
        return tagged or resource.group.casefold() == self.plan.names.resource_group.casefold()

    def knows(self, resource_id: str) -> bool:
        """Whether the state mentions it."""
        return resource_id.lower() in self.known


@dataclass(frozen=True)
class Leak:
    """Something that is left. `name` is an ARM id, or a locked name."""

    kind: str
    name: str
    stack: str
    next_step: str

    @property
    def id_in_azure(self) -> bool:
        """Whether it is there, and not only its name."""
        return self.name.startswith("/")


def find(
    owners: Iterable[Owner],
    resources: Iterable[LiveResource],
    grants: Iterable[LiveGrant],
    soft_deleted: Iterable[SoftDeleted],
) -> tuple[Leak, ...]:
    """All leaks of these stacks, what costs most first."""
    live, roles, locked = list(resources), list(grants), list(soft_deleted)
    found = [leak for owner in owners for leak in _of(owner, live, roles, locked)]
    return tuple(sorted(found, key=lambda leak: (_rank(leak.kind), leak.stack, leak.name.lower())))


def _of(owner: Owner, live: list[LiveResource], roles: list[LiveGrant], locked: list[SoftDeleted]) -> Iterator[Leak]:
    stack, names = owner.plan.stack, owner.plan.names
    again = f"run `make destroy STACK={stack}` again, or, if the stack stays, " if owner.known else ""
    for resource in live:
        if owner.owns(resource) and not owner.knows(resource.id) and not _made_by_azure(resource):
            command = (
                "az group delete --name {0.name}" if resource.type == GROUP_TYPE else "az resource delete --ids {0.id}"
            )
            yield Leak(resource.type, resource.id, stack, f"{again}`{command.format(resource)}`")
    inside = f"/resourcegroups/{names.resource_group}/".lower()
    for grant in roles:
        if inside in f"{grant.scope.lower()}/" and not owner.knows(grant.id) and not owner.knows(grant.scope):
            yield Leak(GRANT, grant.id, stack, f"{again}`az role assignment delete --ids {grant.id}`")
    for each in locked:
        if is_name_of(owner.plan, each):
            yield Leak(each.kind.value, each.name, stack, _way_out(each, owner.plan))


def _made_by_azure(resource: LiveResource) -> bool:
    return any(re.search(pattern, resource.id, re.IGNORECASE) for pattern in _MADE_BY_AZURE)


def is_name_of(plan: AzurePlan, locked: SoftDeleted) -> bool:
    """Whether a locked name is one that this stack uses."""
    names = {Locked.GATEWAY: plan.names.gateway, Locked.VAULT: plan.names.key_vault}
    return locked.name.casefold() == names[locked.kind].casefold()


def _way_out(locked: SoftDeleted, plan: AzurePlan) -> str:
    if not locked.kept and not plan.protect:
        return f"`infra purge -s {plan.stack}`"
    day = f" on {locked.free_on}" if locked.free_on else ""
    return f"Azure frees the name{day}; another name_salt gives another name now"


def _rank(kind: str) -> int:
    folded = [each.lower() for each in _COSTLY]
    return folded.index(kind.lower()) if kind.lower() in folded else len(folded)
