"""`huddle status`: does this node serve, with what, and how long did it take to get there."""

import json
import sys
from typing import Annotated

import typer

from huddle.errors import ExitCode
from huddle.status import report

app = typer.Typer(add_completion=False)


@app.command()
def status(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show whether this node serves (exit code 1: no), its bundle, models and probe, and how long its start took."""
    found = report.gather(report.Sources())
    if as_json:
        typer.echo(json.dumps({**found, "serves": report.serves(found)}, indent=2))
    else:
        typer.echo("\n".join(report.lines(found)))
    if not report.serves(found):
        sys.exit(ExitCode.FAILED)
