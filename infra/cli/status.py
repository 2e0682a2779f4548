"""`infra status`: whether a stack serves, as Azure's control plane tells it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from infra import program

EXIT_DOES_NOT_SERVE = 1


def status(
    stack: Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")] = "dev",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts (docs/reference/status.md).")] = False,
) -> None:
    """Show nodes, bundles, pools, the last roll and alarms that fire. Exit code 1: something does not serve."""
    from cloud_init import bundle  # noqa: PLC0415
    from infra.operations import arm, subscription  # noqa: PLC0415 - what talks to Azure is loaded where it does
    from infra.status import gather, judge, page  # noqa: PLC0415

    plan = program.load_azure_plan(stack)
    wanted = bundle.build(plan).digest
    chosen = subscription.of(stack)
    with arm.connect() as azure:
        found = judge.judge(plan, gather.seen(azure, plan, chosen), wanted)
    typer.echo(json.dumps(page.to_json(found), indent=2) if as_json else "\n".join(page.lines(found)))
    if not found.serves:
        raise typer.Exit(EXIT_DOES_NOT_SERVE)
