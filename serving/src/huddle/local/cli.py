"""`huddle local`: start, stop and look at a whole service on this machine."""

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from huddle.client.api import Health
from huddle.errors import ExitCode
from huddle.launch.request import Device
from huddle.local import files, service
from huddle.local.files import LocalPaths

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Try the whole service on this machine.")
EVERY_S = 10.0

StateDirectory = Annotated[Path, typer.Option("--state", help="Where the service's files go.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
STATE = Path(".local")


@app.command()
def start(
    *,
    state: StateDirectory = STATE,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The wrapper's port; default: 8000, or another free one.")
    ] = None,
    device: Annotated[
        Device | None, typer.Option(help="What the engine computes on; default: CUDA if nvidia-smi exists.")
    ] = None,
    vllm: Annotated[str | None, typer.Option(envvar="HUDDLE_VLLM", help="The vllm program.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for the first answer.")] = 900,
) -> None:
    """Serve a tiny model: real vLLM behind the wrapper, under a supervisor; then print how to talk to it."""
    paths = LocalPaths(state.absolute())
    chosen = device or (Device.CUDA if shutil.which("nvidia-smi") else Device.CPU)
    if service.supervised(paths):
        service.check_port(paths, port)
        _say("it runs already")
        service.wait(paths, timeout, _Progress())
    else:
        service.start(paths, port=port, device=chosen, vllm=vllm)
        _say(f"starting vLLM on {chosen.value} and the wrapper; logs are in {state}/log")
        try:
            service.wait(paths, timeout, _Progress())
        except BaseException:  # Ctrl+C as well: nothing half started stays
            service.stop(paths)
            raise
    with service.client(paths) as client:
        url = client.connection.base_url
    typer.echo("\n".join(files.lines(paths, url, Path.cwd())))


@app.command()
def stop(*, state: StateDirectory = STATE) -> None:
    """Stop the wrapper, then the engine."""
    count = service.stop(LocalPaths(state.absolute()))
    _say(f"stopped {count} processes" if count else "nothing was running")


@app.command()
def status(*, state: StateDirectory = STATE, as_json: AsJson = False) -> None:
    """Say whether it runs and answers; exit code 1 when it does not."""
    paths = LocalPaths(state.absolute())
    pids = [process.pid for process in service.processes(paths)]
    health: Health | None = None
    if pids and paths.connection.exists():
        with service.client(paths) as client:
            health = client.health()
            url = client.connection.base_url
    found = {"state": health.state.value, "url": url, "pids": pids} if health else {"state": "stopped", "pids": pids}
    typer.echo(json.dumps(found) if as_json else " ".join(f"{key}={value}" for key, value in found.items()))
    if not (health and health.ready):
        raise typer.Exit(ExitCode.FAILED)


class _Progress:
    """A line whenever something changes, and every ten seconds."""

    def __init__(self) -> None:
        self._last, self._at_s = "", 0.0

    def __call__(self, health: Health, passed_s: float) -> None:
        if health.detail != self._last or passed_s - self._at_s >= EVERY_S:
            self._last, self._at_s = health.detail, passed_s
            _say(f"{passed_s:3.0f} s  {health.detail}")


def _say(text: str) -> None:
    typer.echo(f"huddle local: {text}", err=True)
