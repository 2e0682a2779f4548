"""`huddle launch`: start the engine of a model on this node and stay with it until it ends."""

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from huddle import gpus, network, registry
from huddle.errors import ExitCode
from huddle.launch import backoff, command, drain, supervise
from huddle.launch.prepare import LaunchError, Options, Prepared, preflight, prepare
from huddle.launch.request import COPIES, Device, Executor
from huddle.launch.tuned import TunedFor
from huddle.planner import speed
from huddle.registry import KvCacheType, files

app = typer.Typer(add_completion=False)


@app.command()
def launch(
    *,
    model: Annotated[str | None, typer.Argument(envvar="MODEL_NAME", help="A served name, or a repository id.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the command, ready to paste; start nothing.")
    ] = False,
    list_names: Annotated[bool, typer.Option("--list", help="List what can be launched.")] = False,
    node_env: Annotated[
        bool, typer.Option("--node-env", help="Print this node's network variables, as a Ray unit needs them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run or --list: print JSON.")] = False,
    registry_file: Annotated[
        Path | None, typer.Option("--registry", envvar="HUDDLE_REGISTRY", help="Another models.yaml.")
    ] = None,
    store: Annotated[
        list[Path] | None,
        typer.Option("--store", envvar="HUDDLE_MODELS", help="Model stores, in order; the first with the files wins."),
    ] = None,
    workspace: Annotated[
        Path, typer.Option(envvar="HUDDLE_WORKSPACE", help="Fast disk for caches.")
    ] = Options.workspace,
    vllm: Annotated[str, typer.Option(envvar="HUDDLE_VLLM", help="The vllm program.")] = "vllm",
    device: Annotated[Device, typer.Option(help="What the engine computes on.")] = Device.CUDA,
    gpu: Annotated[str | None, typer.Option(help="GPU type; default: as nvidia-smi reports it.")] = None,
    executor: Annotated[Executor, typer.Option(help="vLLM's own processes, or a running Ray cluster.")] = Executor.MP,
    fabric: Annotated[str, typer.Option(help="Network between nodes.")] = "tcp-40g",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes of this one engine.")] = 1,
    node_rank: Annotated[int, typer.Option(min=0, help="This node's rank; 0 has the HTTP server.")] = 0,
    node_ip: Annotated[str | None, typer.Option(help="This node's private address.")] = None,
    head: Annotated[str | None, typer.Option(help="Rank 0's private address.")] = None,
    host: Annotated[
        str, typer.Option(help="Address where the engine listens; only the wrapper listens on the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The engine's port; copy I takes the I-th after.")] = 5005,
    copy: Annotated[
        int, typer.Option(min=0, max=COPIES - 1, help="Which engine on this node; each takes the next TP × PP GPUs.")
    ] = 0,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallel size instead of the registry's.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline parallel size instead of the registry's.")] = None,
    max_model_len: Annotated[
        int | None, typer.Option(min=16, help="Longest sequence, tokens; default: the registry's.")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Sequences at once; default: the registry's.")] = None,
    max_num_batched_tokens: Annotated[int | None, typer.Option(min=16, help="Tokens of one step.")] = None,
    kv_cache_dtype: Annotated[KvCacheType | None, typer.Option(help="Type of the KV cache.")] = None,
    enable_prefix_caching: Annotated[
        bool | None,
        typer.Option("--enable-prefix-caching/--no-enable-prefix-caching", help="Keep prompts' starts."),
    ] = None,
    load: Annotated[
        TunedFor, typer.Option(envvar="HUDDLE_LOAD", help="The load whose tuned flags are used, where they hold here.")
    ] = TunedFor.CHAT,
    compile_cache: Annotated[
        Path | None, typer.Option(help="Where compiled code is kept; default: in the workspace, for just this engine.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(min=0.01, max=0.98, help="Share of GPU memory; default: the registry's."),
    ] = None,
    api_server_count: Annotated[
        int | None, typer.Option(min=1, help="Number of HTTP processes; default: the planner's.")
    ] = None,
    shutdown_timeout: Annotated[int, typer.Option(min=0, help="Seconds for running requests at a stop.")] = 120,
    ray_token_file: Annotated[
        Path | None, typer.Option(help="File with the Ray cluster's token; default: systemd's credential ray_token.")
    ] = None,
    media_url_prefix: Annotated[
        list[str] | None,
        typer.Option(help="As in the wrapper's media_url_prefixes; default: the engine fetches no media."),
    ] = None,
    allow_download: Annotated[bool, typer.Option(help="Let vLLM fetch a model that no store has.")] = False,
    allow_slow_fabric: Annotated[bool, typer.Option(help="Allow tensor parallel across nodes over TCP.")] = False,
    clear_leftovers: Annotated[bool, typer.Option(help="End processes that an earlier launch left behind.")] = False,
) -> None:
    """Start a model's engine and stay with it: stop it with SIGTERM or Ctrl+C, twice to stop at once."""
    if list_names:
        _print_names(registry_file, as_json=as_json)
        return
    if node_env:
        _print_node_env(node_ip, fabric)
        return
    if not model:
        raise LaunchError("which model? give its name or set MODEL_NAME; --list shows the names")
    options = Options(
        model=model,
        registry_file=registry_file,
        stores=tuple(store or files.DEFAULT_STORES),
        workspace=workspace,
        program=vllm,
        device=device,
        gpu=gpu,
        executor=executor,
        fabric=fabric,
        nodes=nodes,
        node_rank=node_rank,
        node_ip=node_ip,
        head=head,
        host=host,
        port=port,
        copy=copy,
        tensor=tp,
        pipeline=pp,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        kv_cache_dtype=kv_cache_dtype,
        prefix_caching=enable_prefix_caching,
        load=load.load,
        compile_cache=compile_cache,
        utilization=gpu_memory_utilization,
        front_ends=api_server_count,
        shutdown_timeout_s=shutdown_timeout,
        media_url_prefixes=tuple(media_url_prefix or ()),
        ray_token_file=ray_token_file,
        allow_download=allow_download,
        allow_slow_fabric=allow_slow_fabric,
    )
    prepared = prepare(options, dry=dry_run)
    if dry_run:
        _print_command(prepared, as_json=as_json)
        return
    sys.exit(_run(prepared, clear_leftovers=clear_leftovers))


def _run(prepared: Prepared, *, clear_leftovers: bool) -> int:
    """Preflight, wait when the last runs died young, then run to the end."""
    request = prepared.request
    with supervise.Signals() as signals:
        for done in preflight(prepared, clear_leftovers=clear_leftovers):
            _log(done)
        for remark in prepared.remarks:
            _log(remark)
        record = backoff.Record(Path(request.workspace) / request.record)
        pause = backoff.wait_s(record.read())
        if pause:
            _log(f"the last runs died young: waiting {pause:g} s before this start")
            if signals.wait_for_stop(pause):
                return ExitCode.OK
        built = command.build(request)
        _announce(prepared, built)
        Path(built.env["VLLM_CACHE_ROOT"]).parent.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        code, asked = supervise.run(
            built.argv,
            built.environment(os.environ),
            slot=request.slot,
            drain_s=request.shutdown_timeout_s,
            signals=signals,
            log=_log,
            idle=drain.idle_check(request) if drain.by_launcher(request) else None,
        )
    if asked:
        record.clear()
    else:
        record.died(time.monotonic() - began)
        _log(f"the engine ended by itself; exit code {code}")
    return code


def _announce(prepared: Prepared, built: command.Command) -> None:
    """Say what is started and how long it will take, by whether the compile cache of just this engine is there."""
    _log(shlex.join(built.argv))
    if gpus_taken := prepared.request.visible_gpus:
        _log(f"on the GPU{'s' if len(gpus_taken) > 1 else ''} {', '.join(gpus_taken)}")
    cache = Path(built.env["VLLM_CACHE_ROOT"])
    warm = cache.is_dir()
    _log(f"compile cache {'found' if warm else 'still empty'}: {cache.parent}")
    if prepared.fit:
        seconds = speed.start_s(prepared.fit.shape, prepared.fit.layout, cold=not warm)
        _log(f"expect the first answer after about {seconds:.0f} s and the reading of the weights")


def _print_names(registry_file: Path | None, *, as_json: bool) -> None:
    names = [served.name for served in registry.load(registry_file).served]
    typer.echo(json.dumps(names) if as_json else "\n".join(names))


def _print_node_env(node_ip: str | None, fabric: str) -> None:
    if not node_ip:
        raise LaunchError("--node-ip is missing: the variables are those of the interface that owns it")
    env = command.node_environment(node_ip, network.interface_of(node_ip), rdma=gpus.fabric(fabric).rdma)
    typer.echo("\n".join(f"{name}={value}" for name, value in env.items()))


def _print_command(prepared: Prepared, *, as_json: bool) -> None:
    built = command.build(prepared.request)
    if as_json:
        document = {"argv": built.argv, "env": dict(built.env), "unset": built.unset, "remarks": prepared.remarks}
        typer.echo(json.dumps(document, indent=2))
        return
    for remark in prepared.remarks:
        typer.echo(f"# {remark}", err=True)
    typer.echo(built.shell(), nl=False)


def _log(text: str) -> None:
    typer.echo(f"huddle launch: {text}", err=True)
