"""What counts as left over, whose it is, and what to do about it."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from infra.operations import stack_state
from infra.operations.arm_subscription import GROUP_TYPE, LiveGrant, LiveResource, Locked, SoftDeleted
from infra.operations.leaks import GRANT, Leak, Owner, find
from tests.unit.builders import plan

SUBSCRIPTION = "/subscriptions/6f3c2a10-0000-4000-8000-000000000001"
DEV = plan("dev")
GROUP = f"{SUBSCRIPTION}/resourceGroups/{DEV.names.resource_group}"
OURS = {"project": DEV.project, "stack": "dev", "environment": "dev"}
VM = LiveResource(f"{GROUP}/providers/Microsoft.Compute/virtualMachines/n", "Microsoft.Compute/virtualMachines", OURS)
DISK = LiveResource(f"{GROUP}/providers/Microsoft.Compute/disks/os", "Microsoft.Compute/disks")
GRANT_OF_OURS = LiveGrant(f"{VM.id}/providers/Microsoft.Authorization/roleAssignments/g", VM.id)


def leaks(
    *live: LiveResource,
    known: str = "",
    grants: tuple[LiveGrant, ...] = (),
    locked: tuple[SoftDeleted, ...] = (),
    stack: str = "dev",
) -> list[Leak]:
    return list(find([Owner(plan(stack), stack_state.ids_in(known))], live, grants, locked))


def test_what_bills_by_the_hour_comes_first_and_each_has_a_command() -> None:
    group = LiveResource(GROUP, GROUP_TYPE, OURS)
    found = leaks(group, DISK, VM, grants=(GRANT_OF_OURS,))
    assert [leak.kind for leak in found] == [VM.type, DISK.type, GROUP_TYPE, GRANT]
    assert [leak.next_step for leak in found] == [
        f"`az resource delete --ids {VM.id}`",
        f"`az resource delete --ids {DISK.id}`",
        f"`az group delete --name {DEV.names.resource_group}`",
        f"`az role assignment delete --ids {GRANT_OF_OURS.id}`",
    ]


def test_what_the_state_mentions_is_no_leak_whatever_the_case() -> None:
    state = f'{{"id": "{VM.id.upper()}", "managedDisk": {{"id": "{DISK.id}"}}, "grant": "{GRANT_OF_OURS.id}"}}'
    assert leaks(VM, DISK, grants=(GRANT_OF_OURS,), known=state) == []


def test_while_a_state_is_there_destroy_is_one_way_and_a_stack_that_stays_has_another() -> None:
    (leak,) = leaks(VM, known=f'"{GROUP}"')
    stays = f"`az resource delete --ids {VM.id}`"
    assert leak.next_step == f"run `make destroy STACK=dev` again, or, if the stack stays, {stays}"


@pytest.mark.parametrize(
    "other",
    [
        replace(VM, id=VM.id.replace("-dev-", "-other-"), tags={**OURS, "stack": "other"}),
        replace(VM, id=VM.id.replace("-dev-", "-other-"), tags={**OURS, "project": "other"}),
        replace(VM, id=VM.id.replace("-dev-", "-other-"), tags={}),
        replace(VM, id=VM.id.replace("-dev-rg", "-dev-rg2"), tags={}),
        LiveResource(f"{GROUP}/providers/microsoft.alertsmanagement/smartDetectorAlertRules/Failure Anomalies - x", ""),
        LiveResource(f"{GROUP}/providers/microsoft.insights/actiongroups/Application Insights Smart Detection", ""),
        LiveResource(f"{VM.id}/extensions/AzureMonitorLinuxAgent", ""),
    ],
)
def test_what_is_of_others_or_of_azure_is_no_leak(other: LiveResource) -> None:
    assert leaks(other, grants=(LiveGrant("x", other.id if "other" in other.id else "/subscriptions/6f3c"),)) == []


def test_an_action_group_of_ours_is_found() -> None:
    ours = LiveResource(f"{GROUP}/providers/microsoft.insights/actiongroups/huddleai-dev-alerts", "")
    assert [leak.name for leak in leaks(ours)] == [ours.id]


def test_what_others_granted_on_a_group_that_stays_is_their_business() -> None:
    theirs = LiveGrant(f"{GROUP}/providers/Microsoft.Authorization/roleAssignments/pipeline", GROUP)
    assert leaks(grants=(theirs,), known=f'"{GROUP}"') == []
    assert [leak.name for leak in leaks(grants=(theirs,))] == [theirs.id]


def test_what_carries_our_tags_elsewhere_is_found() -> None:
    moved = replace(VM, id=f"{SUBSCRIPTION}/resourceGroups/elsewhere/providers/Microsoft.Compute/virtualMachines/n")
    assert [leak.name for leak in leaks(moved)] == [moved.id]


@pytest.mark.parametrize(
    ("stack", "kept", "step"),
    [
        ("dev", False, "`infra purge -s dev`"),
        ("dev", True, "Azure frees the name on 2026-12-06; another name_salt gives another name now"),
        ("prod", False, "Azure frees the name on 2026-12-06; another name_salt gives another name now"),
    ],
)
def test_a_locked_name_says_who_frees_it(stack: str, kept: bool, step: str) -> None:
    day = datetime.date(2026, 12, 6)
    vault = SoftDeleted(Locked.VAULT, plan(stack).names.key_vault.upper(), "eastus2", day, kept)
    strange = replace(vault, name="somebody-elses")
    gateway = replace(vault, name=vault.name, kind=Locked.GATEWAY)
    assert leaks(locked=(vault, strange, gateway), stack=stack) == [Leak(Locked.VAULT.value, vault.name, stack, step)]
