"""`infra start`: bring back nodes that Azure has deallocated."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from infra import program

EXIT_REFUSED = 1
Stack = Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def start(stack: Stack = "dev", as_json: Json = False) -> None:
    """Start nodes that the nightly stop, a spot eviction or somebody else has deallocated; wait until they run."""
    from infra.operations import arm, power, stack_state  # noqa: PLC0415 - what talks to Azure is loaded where it does

    plan = program.load_azure_plan(stack)
    ids = stack_state.node_ids(stack, [node.name for node in plan.nodes])
    with arm.connect() as azure:
        found = power.start(azure, ids)
    refused = [node for node in found if node.refusal]
    if as_json:
        typer.echo(json.dumps({"nodes": [vars(node) for node in found]}, indent=2, sort_keys=True))
    for node in () if as_json else found:
        was = "ran already" if node.was == power.RUNNING else f"was {node.was}, is {node.now}"
        typer.echo(f"{node.name}: {was}" + (f". {node.refusal}" if node.refusal else ""))
    if refused:
        typer.echo(f"error: {len(refused)} of {len(found)} nodes did not start; run the command again later", err=True)
        raise typer.Exit(EXIT_REFUSED)
    if not as_json:
        typer.echo("They apply their bundle by themselves and serve again once their models are loaded.")
