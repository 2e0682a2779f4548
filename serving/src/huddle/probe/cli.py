"""`huddle probe`: watch an engine of this node for ever, and bring it back when it no longer moves forward."""

import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from huddle.probe import ladder, verdict
from huddle.probe.judge import Policy
from huddle.probe.loop import ProbeLoop
from huddle.probe.reading import EngineReader

app = typer.Typer(add_completion=False)
DEFAULT = Policy()
EVIDENCE = Path("/var/lib/huddle-probe")


@app.command()
def probe(
    *,
    host: Annotated[str, typer.Option(help="Where the engine listens.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The engine's port; copy I has the I-th after.")] = 5005,
    copy: Annotated[int, typer.Option(min=0, help="Which engine of this node.")] = 0,
    verdict_file: Annotated[
        Path | None, typer.Option(help=f"File for the verdict; default: {verdict.FOLDER}/COPY/verdict.json.")
    ] = None,
    evidence: Annotated[
        Path | None, typer.Option(help=f"Folder for diagnostics of an unhealthy engine; default: {EVIDENCE}/COPY.")
    ] = None,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between readings.")] = DEFAULT.interval_s,
    suspect_after: Annotated[
        float, typer.Option(min=1, help="After these seconds without a due token: accept no requests.")
    ] = DEFAULT.suspect_after_s,
    unhealthy_after: Annotated[
        float, typer.Option(min=1, help="After these seconds without a due token: end the engine.")
    ] = DEFAULT.unhealthy_after_s,
    idle_canary: Annotated[
        float, typer.Option(min=1, help="After these idle seconds: request one token.")
    ] = DEFAULT.idle_canary_s,
    unit: Annotated[str | None, typer.Option(help="The engine's unit; default: huddle-vllm@COPY.service.")] = None,
) -> None:
    """Watch the engine's tokens. If due tokens do not come, refuse new requests, then end the engine for a restart."""
    policy = replace(
        DEFAULT,
        interval_s=interval,
        suspect_after_s=suspect_after,
        unhealthy_after_s=max(unhealthy_after, suspect_after),
        idle_canary_s=idle_canary,
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    ProbeLoop(
        EngineReader(host, port + copy, policy.canary_timeout_s),
        policy,
        verdict_file or verdict.path_of(copy),
        evidence or EVIDENCE / str(copy),
        unit or ladder.unit_of(copy),
    ).run(stop)
