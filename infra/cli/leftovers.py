"""`infra leaks` and `infra purge`: what stacks left behind in Azure. Decisions are made elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from huddle.errors import Fault, HuddleError, InputError
from infra import program
from plan import stack_file

if TYPE_CHECKING:
    from infra.operations.arm import Arm
    from infra.operations.arm_subscription import SoftDeleted
    from infra.operations.leaks import Leak
    from plan.azure.model import AzurePlan

EXIT_LEFT = 1
PURGE_S = 1800.0
"""A purged gateway's name is free after some minutes."""
EVERY_S = 10.0
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def leaks(
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Stack name; without it, every stack of this project.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List what stacks left in the subscription: resources, role assignments, locked names. Exit code 1 if anything."""
    from infra.operations import arm, leaks, stack_state, subscription  # noqa: PLC0415 - what talks to Azure is
    from infra.operations import arm_subscription as azure_side  # noqa: PLC0415 - loaded where it does

    plans = [program.load_azure_plan(stack)] if stack else list(_every_plan())
    chosen = {plan.stack: subscription.of(plan.stack) for plan in plans}
    owners = [leaks.Owner(plan, stack_state.known_ids(plan.stack)) for plan in plans]
    with arm.connect() as azure:
        found = tuple(
            leak
            for each in sorted(set(chosen.values()))
            for leak in leaks.find(
                [owner for owner in owners if chosen[owner.plan.stack] == each],
                azure_side.resources(azure, each),
                azure_side.grants(azure, each),
                azure_side.soft_deleted(azure, each),
            )
        )
    asked = ", ".join(sorted(set(chosen.values())))
    names = [plan.stack for plan in plans]
    for owner in owners:  # another backend, or another person's stack of the same name
        if not owner.known and any(leak.id_in_azure and leak.stack == owner.plan.stack for leak in found):
            typer.echo(
                f"warning: the state of {owner.plan.stack} where Pulumi is logged in knows nothing of what follows; if "
                "a stack of that name is kept elsewhere, it is in use: delete nothing",
                err=True,
            )
    if as_json:
        typer.echo(
            json.dumps({"subscription": asked, "stacks": names, "leaks": [vars(leak) for leak in found]}, indent=2)
        )
    else:
        _show(asked, names, found)
    if found:
        raise typer.Exit(EXIT_LEFT)


def _every_plan() -> Iterator[AzurePlan]:
    """The plans of all stacks; what one that is wrong left is told once its file is right."""
    for name in stack_file.names():
        try:
            yield program.load_azure_plan(name)
        except HuddleError as error:
            for fault in error.faults:
                typer.echo(f"warning: {name} is left out: {fault}", err=True)


def _show(subscription: str, stacks: list[str], found: tuple[Leak, ...]) -> None:
    where = f"of {', '.join(stacks)} in subscription {subscription}"
    if not found:
        typer.echo(f"Nothing {where} is left over.")
        return
    typer.echo(f"{len(found)} left over {where}:")
    for leak in found:
        typer.echo(f"  {leak.stack}: {leak.kind} {leak.name}\n    next: {leak.next_step}")


def purge(
    stack: Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")] = "dev",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Free the names of a destroyed stack's gateway and key vault for good; not of a protected stack."""
    from infra.operations import arm, subscription  # noqa: PLC0415

    plan = program.load_azure_plan(stack)
    if plan.protect:
        reason = (
            f"is {plan.environment.value}: its deleted gateway and key vault can be restored, so they are not purged"
        )
        raise InputError(Fault(stack_file.label(stack), "environment", reason))
    chosen = subscription.of(stack)
    with arm.connect() as azure:
        found = _locked(azure, chosen, plan)
        if kept := [each for each in found if each.kept]:
            reason = f"{kept[0].name} has purge protection, so Azure keeps it until {kept[0].free_on}; set another one"
            raise InputError(Fault(stack_file.label(stack), "name_salt", reason))
        if found:
            _be_sure(found, yes)
        _forget(azure, chosen, plan, found)
    if as_json:
        typer.echo(json.dumps({"purged": [{"kind": each.kind.value, "name": each.name} for each in found]}, indent=2))
    else:
        typer.echo(f"purged: {', '.join(each.name for each in found) or 'nothing, no name of this stack is locked'}")


def _locked(azure: Arm, subscription: str, plan: AzurePlan) -> list[SoftDeleted]:
    from infra.operations import arm_subscription as azure_side  # noqa: PLC0415
    from infra.operations import leaks  # noqa: PLC0415

    return [each for each in azure_side.soft_deleted(azure, subscription) if leaks.is_name_of(plan, each)]


def _be_sure(found: list[SoftDeleted], yes: bool) -> None:
    """What is purged cannot be restored, so a person says so, or a script does."""
    names = " and ".join(each.name for each in found)
    question = f"Purge {names}? Nobody can restore them afterwards."
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(Fault("infra purge", "", f"asks before it purges; add --yes. {question}"))
    if not typer.confirm(question):
        typer.echo("Nothing was changed.")
        raise typer.Exit(EXIT_LEFT)


def _forget(azure: Arm, subscription: str, plan: AzurePlan, found: list[SoftDeleted]) -> None:
    """Purge, and wait until Azure lists the names no more."""
    from infra.operations import arm_subscription as azure_side  # noqa: PLC0415
    from infra.operations.arm import ArmError  # noqa: PLC0415

    for each in found:
        typer.echo(f"purging {each.kind.value} {each.name}", err=True)
        azure_side.purge(azure, subscription, each)
    end = time.monotonic() + PURGE_S
    while left := _locked(azure, subscription, plan):
        if time.monotonic() > end:
            names = ", ".join(each.name for each in left)
            raise ArmError(
                f"Azure still holds {names} after {PURGE_S / 60:.0f} min; see `infra leaks -s {plan.stack}`."
            )
        time.sleep(EVERY_S)
