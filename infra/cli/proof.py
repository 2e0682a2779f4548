"""`infra prove`: ask Azure what only Azure can settle, and write the answers down."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from huddle.errors import Fault, InputError
from infra import program

EXIT_FAILS = 1


def prove(
    stack: Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")] = "dev",
    trying: Annotated[
        bool,
        typer.Option(
            "--try",
            help="Also run a small command on the first node, send two requests through the gateway, and preview.",
        ),
    ] = False,
    to: Annotated[Path | None, typer.Option("--out", help="Write the page to this new file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> None:
    """Ask Azure what this program assumes of it, after `up` or `destroy`. Exit code 1: something does not hold."""
    from infra.operations import arm, stack_outputs, subscription  # noqa: PLC0415 - what talks to Azure is loaded
    from infra.proof import answers, drift, gather, page, requests, sent  # noqa: PLC0415 - where it does

    if to is not None and to.exists():
        raise InputError(Fault("--out", "", f"{to} is there already; name a new file"))
    plan = program.load_azure_plan(stack)
    chosen = subscription.current()
    with arm.connect() as azure:
        seen = gather.evidence(
            azure,
            plan,
            chosen,
            sent_bytes=sent.largest_bytes(plan),
            trying=trying,
            requests=(lambda: requests.twice(stack_outputs.with_secrets(stack))) if trying else gather.NOT_TRYING,
            drift=(lambda: drift.changed(stack)) if trying else gather.NOT_TRYING,
        )
        found = page.Page(datetime.now(UTC), plan, azure.is_stand_in, answers.all_of(plan, seen))
    text = json.dumps(page.to_json(found), indent=2) + "\n" if as_json else page.to_markdown(found)
    if to is None:
        typer.echo(text, nl=False)
    else:
        to.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {to}: {answers.count(found.answers)}", err=True)
    if any(one.verdict is answers.Verdict.FAILS for one in found.answers):
        raise typer.Exit(EXIT_FAILS)
