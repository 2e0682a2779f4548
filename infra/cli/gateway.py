"""`infra keys` and `infra products`: what the gateway holds, and changing keys. Decisions are made elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from huddle.errors import Fault, InputError
from infra import program
from plan.vocabulary import KeyName

if TYPE_CHECKING:
    from infra.operations.inventory import Inventory
    from infra.operations.key_rotation import Rotation
    from plan.azure.model import AzurePlan

EXIT_REFUSED = 1
Stack = Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
keys = typer.Typer(no_args_is_help=True, help="Change subscription keys without downtime.")


@keys.command("rotate")
def rotate(  # noqa: PLR0917 - options of a command line
    subscription: Annotated[str, typer.Argument(help="PRODUCT/SUBSCRIPTION, as in the stack file.")],
    stack: Stack = "dev",
    finish: Annotated[bool, typer.Option("--finish", help="The second step, once clients have moved.")] = False,
    in_use: Annotated[
        KeyName, typer.Option(help="The key that clients used when the rotation began.")
    ] = KeyName.PRIMARY,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Replace the key that nobody uses; then, with --finish, the one that clients have left."""
    from infra.operations import arm, key_rotation  # noqa: PLC0415
    from infra.operations import arm_gateway as gateway  # noqa: PLC0415
    from infra.operations import stack_outputs as live_stack  # noqa: PLC0415 - what talks to Azure is loaded where it does

    plan = program.load_azure_plan(stack)
    step = key_rotation.Step.FINISH if finish else key_rotation.Step.START
    rotation = key_rotation.plan_step(plan.gateway, f"stacks/Pulumi.{stack}.yaml", subscription, step, in_use)
    _be_sure(rotation, yes)
    gateway_id = live_stack.gateway_id(live_stack.outputs(stack), stack)
    with arm.connect() as azure:
        gateway.regenerate(azure, gateway_id, rotation.sid, rotation.renews)
    steps = rotation.next_steps(stack)
    if as_json:
        done = {"subscription": subscription, "renewed": rotation.renews, "clients_use": rotation.clients_use}
        _print_json({**done, "step": rotation.step, "next_steps": steps})
        return
    typer.echo(f"The {rotation.renews} key of {subscription} is new; the {rotation.clients_use} key works as before.")
    typer.echo("Next:")
    for number, text in enumerate(steps, start=1):
        typer.echo(f"  {number}. {text}")


def _be_sure(rotation: Rotation, yes: bool) -> None:
    """A renewed key cuts off whoever still uses it, so a person says so, or a script does."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(Fault("infra keys rotate", "", f"asks before it renews a key; add --yes. {rotation.question}"))
    if not typer.confirm(rotation.question):
        typer.echo("Nothing was changed.")
        raise typer.Exit(EXIT_REFUSED)


def products(
    stack: Stack = "dev",
    leaving: Annotated[
        bool, typer.Option("--leaving", help="Only check whether `up` would delete products that others subscribed to.")
    ] = False,
    destroy: Annotated[
        bool, typer.Option("--destroy", help="Only check what `destroy` would take from others.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List products and subscriptions, ours and others'. Exit code 1 when `up` would delete what others use."""
    from infra.operations import arm  # noqa: PLC0415

    plan = program.load_azure_plan(stack)
    if destroy:
        _before_destroy(plan)
        return
    if leaving and not _products_leave(plan):
        return
    try:
        found = take_inventory(plan)
    except arm.NotThereError:
        if leaving:  # outputs outlive a gateway whose destroy was interrupted, and with it everybody's subscriptions
            return
        raise
    if leaving:
        _say(found.refusals)
    elif as_json:
        _print_json(_as_json(found))
    else:
        _show(plan, found)
    if found.refusals:
        raise typer.Exit(EXIT_REFUSED)


def _before_destroy(plan: AzurePlan) -> None:
    """Our own gateway goes as a whole, whoever uses it; one of others refuses to let a product in use go."""
    from infra.operations import arm  # noqa: PLC0415
    from infra.operations import stack_outputs as live_stack  # noqa: PLC0415

    try:
        if "gateway_id" not in live_stack.outputs(plan.stack):
            return
        lost = take_inventory(plan).lost_by_destroy
    except (live_stack.NoStackError, arm.NotThereError):  # outputs outlive a gateway whose destroy was interrupted
        return
    except arm.ArmError as error:
        if plan.gateway.existing is not None:
            raise
        typer.echo(f"warning: whether others subscribed to the gateway is not known: {error}", err=True)
        return
    if plan.gateway.existing is None:
        for sentence in lost:
            typer.echo(f"warning: {sentence}; they go with the gateway", err=True)
    elif lost:
        _say(f"{sentence}; move or delete them in the portal first, nothing was deleted" for sentence in lost)
        raise typer.Exit(EXIT_REFUSED)


def _products_leave(plan: AzurePlan) -> bool:
    """Whether a product that the last `up` left is no longer planned: only then need Azure be asked."""
    from infra.operations import stack_outputs as live_stack  # noqa: PLC0415

    try:
        deployed = live_stack.outputs(plan.stack).get("products") or ()
    except live_stack.NoStackError:
        return False
    if renamed := [each for each in plan.gateway.products if each.id not in deployed and each.name in deployed]:
        typer.echo(
            f"warning: {', '.join(f'product {each.name} becomes {each.id}' for each in renamed)}, and subscriptions "
            'get new keys; `gateway.existing.prefix: ""` keeps both',
            err=True,
        )
    planned = {product.id.casefold() for product in plan.gateway.products}
    return any(product.casefold() not in planned for product in deployed)


def take_inventory(plan: AzurePlan) -> Inventory:
    """What a stack's gateway holds, as Azure says now."""
    from infra.operations import arm, inventory  # noqa: PLC0415
    from infra.operations import arm_gateway as gateway  # noqa: PLC0415
    from infra.operations import stack_outputs as live_stack  # noqa: PLC0415

    known = live_stack.outputs(plan.stack)
    gateway_id = live_stack.gateway_id(known, plan.stack)
    with arm.connect() as azure:
        return inventory.take(
            plan.gateway,
            known.get("products") or (),
            list(gateway.products(azure, gateway_id)),
            list(gateway.subscriptions(azure, gateway_id)),
        )


def _show(plan: AzurePlan, found: Inventory) -> None:
    ours = ", ".join(product.id for product in plan.gateway.products)
    typer.echo(f"ours, in stacks/Pulumi.{plan.stack}.yaml: {ours}")
    rows = (
        ("products of others", [f"{each.id} ({each.display_name})" for each in found.foreign_products]),
        (
            "subscriptions of others to our products",
            [f"{each.product}: {each.display_name} ({each.owner or each.sid})" for each in found.foreign_subscriptions],
        ),
        (
            "keys for the whole API, past every limit (our API refuses them)",
            [f"{each.display_name} ({each.sid})" for each in found.bypasses],
        ),
    )
    for heading, items in rows:
        typer.echo(f"{heading}: {', '.join(items) or 'none'}")
    _say(found.refusals)


def _say(refusals: Iterable[str]) -> None:
    for refusal in refusals:
        typer.echo(f"error: {refusal}", err=True)


def _as_json(found: Inventory) -> dict[str, Any]:
    return {
        "foreign_products": [vars(each) for each in found.foreign_products],
        "foreign_subscriptions": [vars(each) for each in found.foreign_subscriptions],
        "bypasses": [vars(each) for each in found.bypasses],
        "blocked": {product: list(names) for product, names in found.blocked.items()},
    }


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, sort_keys=True))
