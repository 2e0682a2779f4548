"""`huddle tune`: measure which flags serve a model fastest here, and write them into the registry."""

import datetime
import json
import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from huddle import registry
from huddle.errors import ExitCode, InputError
from huddle.launch.prepare import Options, Prepared, preflight, prepare
from huddle.launch.request import COPIES, Device
from huddle.registry import files
from huddle.tune import entry, report, results, search, sweep
from huddle.tune.sweep import Node, Plan
from huddle.tune.workload import WORKLOADS, Workload

app = typer.Typer(add_completion=False)
MOST_STREAMS = 4096


@app.command()
def tune(
    *,
    model: Annotated[str, typer.Argument(envvar="MODEL_NAME", help="A served name, or a repository id.")],
    load: Annotated[
        list[registry.Load] | None, typer.Option(help="What to tune for; repeat it; default: all that fit the model.")
    ] = None,
    streams: Annotated[
        str | None, typer.Option(help="Numbers of streams at a time instead of the loads' own, such as 8,64.")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help=f"A flag to leave as it is; repeat it: {', '.join(search.NAMES)}.")
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, max=100, help="Per cent by which a p95 latency may be worse than untold.")
    ] = 10,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Start no engine that would end later; the best so far is written.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain/--no-plain", help="Measure `vllm serve MODEL`, too.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured and how long it takes.")
    ] = False,
    results_file: Annotated[
        Path | None,
        typer.Option("--results", help="What was measured; default: in the workspace. A run goes on there."),
    ] = None,
    afresh: Annotated[bool, typer.Option("--afresh", help="Forget what was measured.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    registry_file: Annotated[
        Path | None,
        typer.Option(
            "--registry", envvar="HUDDLE_REGISTRY", help="Another models.yaml; what is found is written there."
        ),
    ] = None,
    store: Annotated[
        list[Path] | None, typer.Option("--store", envvar="HUDDLE_MODELS", help="Model stores, in order.")
    ] = None,
    workspace: Annotated[
        Path, typer.Option(envvar="HUDDLE_WORKSPACE", help="Fast disk for caches, logs and results.")
    ] = Options.workspace,
    vllm: Annotated[str, typer.Option(envvar="HUDDLE_VLLM", help="The vllm program.")] = "vllm",
    device: Annotated[Device, typer.Option(help="What the engine computes on.")] = Device.CUDA,
    gpu: Annotated[str | None, typer.Option(help="GPU type; default: as nvidia-smi reports it.")] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The engines' port.")] = 5005,
    copy: Annotated[int, typer.Option(min=0, max=COPIES - 1, help="Which GPUs of the node, as for a launch.")] = 0,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallel size instead of the registry's.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline parallel size instead of the registry's.")] = None,
) -> None:
    """Find the fastest flags for a model on this node's GPUs. Ctrl-C keeps what was measured; the next run goes on."""
    if unknown := sorted({*(fix or ())} - {*search.NAMES}):
        raise InputError(f"--fix {unknown[0]!r} must be one of {', '.join(search.NAMES)}")
    known = registry.load(registry_file)
    own = workspace / "tune"
    asked = Options(
        model=model,
        registry_file=registry_file,
        stores=tuple(store or files.DEFAULT_STORES),
        workspace=own,
        program=vllm,
        device=device,
        gpu=gpu,
        port=port,
        copy=copy,
        tensor=tp,
        pipeline=pp,
        load=None,
        compile_cache=own / "compiled",
        shutdown_timeout_s=0,
    )
    prepared = prepare(asked, dry=dry_run)
    request = prepared.request
    name = request.served.model.name
    node = Node(asked, prepared, _workloads(prepared, load, streams))
    knobs = search.knobs(node.untold, os.cpu_count() or 2, fix or ())
    plan = Plan(node.workloads, knobs, tolerance / 100, plain)
    conditions = node.conditions
    file = results_file or own / f"{name}-{request.gpu}-vllm-{request.vllm_version}.json"
    found = results.read(file, conditions, afresh=afresh)
    if dry_run:
        _print_plan(node, plan, found, file, as_json=as_json)
        return
    entry.put(known, name, None, dry=True)  # before hours are spent
    above = replace(request, workspace=str(workspace))  # our own directory may not be there yet
    preflight(replace(prepared, request=above), clear_leftovers=False)
    own.mkdir(exist_ok=True)
    try:
        found.write(file)
    except OSError as error:
        raise InputError(
            f"{file}: cannot keep results there ({error.strerror}); --results names another file"
        ) from None
    try:
        with sweep.stoppable():
            limit_s = None if minutes is None else minutes * 60
            whole = sweep.run(plan, found, file, node.measure, say=_log, limit_s=limit_s)
    except KeyboardInterrupt:
        _log(f"stopped; {len(plan.measured(found))} engines are in {file}, and the same command goes on from there")
        raise typer.Exit(ExitCode.FAILED) from None
    if not whole:
        _log(f"the time is over after {len(plan.measured(found))} engines; the same command goes on from there")
    verdicts = report.verdicts(plan, found)
    for unjudged in (load for load in plan.workloads if load not in [verdict.workload for verdict in verdicts]):
        _log(f"nothing can be said of the load {unjudged.load} yet: the untold engine has not been under it")
    for verdict in verdicts:
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        entry.put(registry.load(registry_file), name, verdict.tuned(conditions, today))
    if as_json:
        loads = [verdict.data() for verdict in verdicts]
        document = {"conditions": conditions, "whole": whole, "loads": loads, "results": str(file)}
        typer.echo(json.dumps({**document, "registry": str(known.path)}, indent=2))
    else:
        for verdict in verdicts:
            typer.echo("\n".join(verdict.lines()))
        typer.echo(f"written into {known.path}; `huddle launch {model}` uses it on {request.gpu} from now on")


def _workloads(prepared: Prepared, asked: list[registry.Load] | None, streams: str | None) -> tuple[Workload, ...]:
    """The loads that are asked for, or all that fit.

    Raises:
        InputError: one that is asked for does not fit, or the streams are no numbers.
    """
    words = [word.strip() for word in streams.split(",")] if streams is not None else []
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MOST_STREAMS for word in words):
        raise InputError(f"--streams {streams!r} must be numbers from 1 to {MOST_STREAMS}, such as 8,64")
    request, fit = prepared.request, prepared.fit
    longest = request.max_model_len or (fit.ask.max_model_len if fit else None)
    found = []
    for name in dict.fromkeys(asked or registry.Load):
        workload = WORKLOADS[name]
        if longest is None or workload.length <= longest:
            found.append(replace(workload, levels=tuple(map(int, words))) if words else workload)
            continue
        has = f"{request.served.name!r} has {longest:,}"
        said = f"the load {name} needs sequences of {workload.length:,} tokens, and {has}"
        if asked:
            raise InputError(f"{said}; tune for another load, or raise max-model-len in the registry")
        _log(f"{said}: left out")
    if not found:
        raise InputError(f"no load fits {request.served.name!r}, whose sequences have {longest:,} tokens at most")
    return tuple(found)


def _print_plan(node: Node, plan: Plan, found: results.Results, file: Path, *, as_json: bool) -> None:
    each = node.seconds
    left, measured = plan.left(found), len(plan.measured(found))
    document: dict[str, Any] = {
        "conditions": node.conditions,
        "loads": [str(workload) for workload in plan.workloads],
        "flags": {knob.name.replace("_", "-"): knob.values for knob in plan.knobs},
        "engines_at_most": plan.most_engines,
        "measured": measured,
        "minutes_at_most": None if each is None else round(left * each / 60, 1),
        "results": str(file),
        "plain": shlex.join(node.argv(None)) if plan.plain else None,
    }
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    how_long = "how long is not known without a GPU" if each is None else f"about {left * each / 60:.0f} min at most"
    typer.echo(f"{left} engines at most, {how_long}; {measured} are in {file}")
    for remark in node.prepared.remarks:
        typer.echo(f"# {remark}", err=True)
    typer.echo("\n".join(f"  {workload}" for workload in document["loads"]))
    typer.echo(f"  untold: {node.conditions['command']}")
    if plan.plain:
        typer.echo(f"  plain: {document['plain']}")
    for name, values in document["flags"].items():
        typer.echo(f"  then --{name}: {', '.join(str(value).lower() for value in values)}")


def _log(text: str) -> None:
    typer.echo(f"huddle tune: {text}", err=True)
