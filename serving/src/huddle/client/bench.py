"""`huddle bench`: latency and throughput of an endpoint, as its clients see them."""

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from huddle.client import options
from huddle.client.api import Client
from huddle.client.bench_report import Level, render, summarise
from huddle.client.connection import ClientError
from huddle.client.load import Driver, Load
from huddle.client.progress import Steps
from huddle.errors import ExitCode

app = typer.Typer(add_completion=False)
PROMPT = "Tell a long story about a lighthouse keeper who learns the names of all the ships that pass."
MOST_STREAMS = 4096
PLAIN_WIDTH = 120


@app.command()
def bench(
    *,
    concurrency: Annotated[
        str, typer.Option("--concurrency", "-c", help="Numbers of concurrent streams, one level after the other.")
    ] = "1,2,4,8",
    requests: Annotated[
        int | None, typer.Option("--requests", "-n", min=1, help="Requests at each level; default: 4 for each stream.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 128,
    prompt: Annotated[str, typer.Option(help="The question.")] = PROMPT,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="Make every answer as long as allowed (a vLLM field).")
    ] = False,
    model: options.Model = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    url: options.Url = None,
    connection: options.ConnectionFile = None,
    stack: options.Stack = None,
    subscription: options.Subscription = None,
) -> None:
    """Measure time to the first token, whole latency and tokens per second at rising numbers of streams."""
    streams = levels(concurrency)
    counts = [(number, requests or 4 * number) for number in streams]
    with Client(url, connection_file=connection, stack=stack, subscription=subscription) as client:
        load = Load(client.pick_model(model), prompt, max_tokens, ignore_eos)
        with Steps("measured", sum(count for _, count in counts)) as steps:
            measured = asyncio.run(_measure(client, load, counts, steps))
    if as_json:
        result = {"endpoint": client.connection.base_url, "model": load.model, "max_tokens": max_tokens}
        typer.echo(json.dumps(result | {"levels": [asdict(level) for level in measured]}, indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH).print(render(measured))
    if failed := sum(level.failed for level in measured):
        reason = next(level.error for level in measured if level.error)
        who = "1 stream" if failed == 1 else f"{failed:,} streams"
        raise ClientError(f"{who} failed (not in the figures); the first: {reason}", exit_code=ExitCode.FAILED)


def levels(text: str) -> list[int]:
    """`1,2,4` as numbers.

    Raises:
        ClientError: for anything else.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MOST_STREAMS for word in words):
        raise ClientError(f"--concurrency {text!r} must be numbers from 1 to {MOST_STREAMS}, such as 1,2,4,8")
    return [int(word) for word in words]


async def _measure(client: Client, load: Load, counts: list[tuple[int, int]], steps: Steps) -> list[Level]:
    """One level after the other, after one stream that is not counted and warms connections and caches."""
    async with client.asynchronous(max_retries=0) as sdk:
        driver = Driver(sdk, client.connection, load)
        warm = await driver.one()
        if warm.error:
            raise ClientError(f"the first request failed already: {warm.error}", exit_code=ExitCode.FAILED)
        return [summarise(streams, await driver.level(streams, count, steps.step)) for streams, count in counts]
