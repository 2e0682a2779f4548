"""`huddle batch`: all requests of a file, in OpenAI's batch format, against an endpoint."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from huddle.client import batch_file, options
from huddle.client.api import Client
from huddle.client.batch_run import RETRIES, Sender
from huddle.client.connection import ClientError
from huddle.client.progress import Steps
from huddle.errors import ExitCode

app = typer.Typer(add_completion=False)
INTERRUPTED = 130


@app.command()
def batch(
    *,
    file: Annotated[Path, typer.Argument(help="JSON lines with custom_id, method, url, body.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the answers; default: FILE.output.jsonl.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, max=1024, help="Requests at a time.")] = 8,
    retries: Annotated[int, typer.Option(min=0, max=20, help="Retries of a request that may succeed later.")] = RETRIES,
    priority: Annotated[
        int | None,
        typer.Option(help="Priority of requests without one; lower goes first, if the engine schedules by priority."),
    ] = None,
    model: options.Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: options.Url = None,
    connection: options.ConnectionFile = None,
    stack: options.Stack = None,
    subscription: options.Subscription = None,
) -> None:
    """Send every request of FILE and write the answers. Run the same command again to continue an interrupted run."""
    requests = batch_file.read(file)
    target = output or file.with_name(f"{file.name.removesuffix('.jsonl')}.output.jsonl")
    errors = target.with_name(f"{target.name.removesuffix('.jsonl').removesuffix('.output')}.errors.jsonl")
    if file.resolve() in {target.resolve(), errors.resolve()}:
        raise ClientError(f"{target}: the answers cannot go into the batch itself; choose another --output")
    with Client(url, connection_file=connection, stack=stack, subscription=subscription) as client:
        defaults: dict[str, Any] = {"model": _check_models(client, requests, model, file)}
        if priority is not None:
            defaults["priority"] = priority
        with batch_file.Output(target) as writer:
            done = writer.finished(requests)
            left = [request for request in requests if request.custom_id not in done]
            if done:
                typer.echo(f"{len(done):,} of {len(requests):,} are answered already in {target}", err=True)
            with Steps("answered", len(requests), len(done)) as steps:
                sdk = client.asynchronous(max_retries=retries)
                sender = Sender(sdk, client.connection, writer, errors, steps.step)
                try:
                    asyncio.run(sender.run(left, concurrency, defaults))
                except KeyboardInterrupt:
                    typer.echo(_stopped(sender, len(left)), err=True)
                    raise typer.Exit(INTERRUPTED) from None
                except ClientError as error:
                    raise ClientError(f"{error}; {_stopped(sender, len(left))}", exit_code=ExitCode.FAILED) from error
    totals = sender.totals
    if not totals.failed:
        errors.unlink(missing_ok=True)
    _report(totals.answered, totals.failed, len(done), target, errors, as_json=as_json)
    if totals.failed:
        raise typer.Exit(ExitCode.FAILED)


def _check_models(client: Client, requests: list[batch_file.BatchRequest], chosen: str | None, file: Path) -> str:
    """The model for requests that name none. Unknown ones are refused before anything is sent."""
    default = client.pick_model(chosen)
    served = client.models()
    problems = [
        f"{file}:{request.line}: no model {request.body['model']!r} is served; there are {', '.join(served)}"
        for request in requests
        if request.body.get("model", default) not in served
    ]
    if problems:
        raise batch_file.BatchFileError(problems)
    return default


def _stopped(sender: Sender, total: int) -> str:
    answered = sender.totals.answered
    return f"stopped after {answered:,} of {total:,}; run the same command again to send the rest"


def _report(answered: int, failed: int, before: int, target: Path, errors: Path, *, as_json: bool) -> None:
    if as_json:
        result = {"answered": answered, "failed": failed, "answered_before": before, "output": str(target)}
        typer.echo(json.dumps(result | {"errors": str(errors) if failed else None}))
        return
    typer.echo(f"{answered:,} answered now, {before:,} before; {target}")
    if failed:
        typer.echo(f"{failed:,} refused or failed; {errors} says why, and the same command tries them again", err=True)
