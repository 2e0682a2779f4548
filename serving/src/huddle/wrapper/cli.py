"""`huddle wrapper`: run it, check its configuration, make a subscriber's key."""

import json
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop

from huddle.wrapper import config as configs
from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.auth import new_key
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.openapi import document

app = typer.Typer(no_args_is_help=False, invoke_without_command=True, add_completion=False)

_Config = Annotated[
    Path, typer.Option("--config", "-c", envvar="HUDDLE_WRAPPER_CONFIG", help="The configuration file (YAML).")
]


@app.callback()
def run(  # noqa: PLR0917 - typer's options
    context: typer.Context,
    config: _Config = configs.DEFAULT_PATH,
    listen: Annotated[
        str | None, typer.Option(envvar="HUDDLE_WRAPPER_LISTEN", help="IP:PORT or unix:/PATH to listen on.")
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            envvar="HUDDLE_WRAPPER_UPSTREAM",
            help="The engine: http://HOST:PORT or unix:/PATH; once for each of several that serve the same models.",
        ),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(envvar="HUDDLE_WRAPPER_METRICS_LISTEN", help="IP:PORT for /metrics.")
    ] = None,
    backend_keys_file: Annotated[
        Path | None, typer.Option(envvar="HUDDLE_BACKEND_KEYS_FILE", help="File with the gateway's keys, one a line.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(envvar="HUDDLE_WRAPPER_WORKERS", help="Processes that share the port.")
    ] = None,
) -> None:
    """Serve the OpenAI-compatible front of vLLM engines (stop with SIGTERM, reload with SIGHUP)."""
    overrides: dict[str, Any] = {
        "listen": listen,
        "upstream": upstream or None,
        "metrics_listen": metrics_listen,
        "backend_keys_file": backend_keys_file,
        "workers": workers,
    }
    context.obj = (config, overrides)
    if context.invoked_subcommand is not None:
        return

    def load() -> WrapperConfig:
        return configs.load(config, overrides)

    serve(load)


@app.command()
def check(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The configuration file (YAML); the same as before `check`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the effective configuration as JSON.")] = False,
) -> None:
    """Check the configuration, the prompts and the keys that it names; start nothing."""
    path, overrides = context.obj
    path = config or path
    loaded = configs.load(path, overrides)
    runtime = runtimes.build(loaded, b"check")
    if as_json:
        typer.echo(json.dumps({"ok": True, "config": json.loads(loaded.model_dump_json())}, indent=2))
        return
    typer.echo(f"{path}: good; listens on {loaded.listen}, asks {', '.join(map(str, loaded.addresses))}")
    for product, preparer in runtime.preparers.items():
        for served in preparer.served.values():
            prompt = f"prompt {served.prompt.id} {served.prompt.sha256[:12]}" if served.prompt else "no prompt"
            typer.echo(f"  {product or '(gateway, no product)'}: {served.name} → {served.upstream_model}, {prompt}")


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of what the wrapper offers."""
    typer.echo(json.dumps(document(), indent=2))


@app.command()
def key() -> None:
    """Make a key for a subscriber: give them the key, put the hash under products.NAME.keys."""
    made, digest = new_key()
    typer.echo(f"key:    {made}\nsha256: {digest}")


def serve(load: Any) -> None:
    """Run in this process, or in several that share the port."""
    from huddle.wrapper.observability.notify import Notifier  # noqa: PLC0415 - kept with the server: `check` needs neither
    from huddle.wrapper.server import Server  # noqa: PLC0415
    from huddle.wrapper.workers import supervise  # noqa: PLC0415

    _hold_standard_streams()
    config: WrapperConfig = load()
    salt_secret = secrets.token_bytes(32)  # made before forking: the workers share one engine's cache
    if config.workers == 1:
        uvloop.run(_serve(Server, load, salt_secret, 0, lambda: None))
        return
    runtimes.build(config, salt_secret)  # a wrong file is one sentence, not one for each worker

    def serve_worker(worker: int, started: Any) -> None:
        uvloop.run(_serve(Server, load, salt_secret, worker, started))

    notifier = Notifier()
    notifier.kept("")  # what a single process had kept would hold the port that all are to share
    code = supervise(config.workers, serve_worker, notifier)
    raise typer.Exit(code)


def _hold_standard_streams() -> None:
    """Put /dev/null where the starter closed one of 0 to 2: a socket would get the number, and our errors with it."""
    while (lowest := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(lowest)


async def _serve(server: Any, load: Any, salt_secret: bytes, worker: int, started: Any) -> None:
    await server(load, salt_secret).run(worker=worker, started=started)
