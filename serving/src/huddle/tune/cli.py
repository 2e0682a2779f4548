"""`huddle tune`: measure which flags serve a model fastest here, and write them into the registry."""

import contextlib
import datetime
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from huddle import registry
from huddle.errors import ExitCode, InputError
from huddle.launch.prepare import Options, Prepared, preflight, prepare
from huddle.launch.request import COPIES, Device
from huddle.registry import files
from huddle.tune import entry, lock, ports, report, results, search, stops, sweep
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
    tried: Annotated[
        list[str] | None,
        typer.Option("--try", help=f"A flag to try, too; repeat it: {', '.join(search.ON_REQUEST)}."),
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
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The engines' port, as for a launch; default: one that no node serves at."),
    ] = None,
    engines: Annotated[
        int, typer.Option(min=1, max=COPIES, help="Engines of this node in service, which share its cores.")
    ] = 1,
    copy: Annotated[int, typer.Option(min=0, max=COPIES - 1, help="Which GPUs of the node, as for a launch.")] = 0,
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor parallel size instead of the registry's.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline parallel size instead of the registry's.")] = None,
) -> None:
    """Find the fastest flags for a model on this node's GPUs. Ctrl-C keeps what was measured; the next run goes on."""
    _check_flags(fix or (), tried or ())
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
        port=ports.reserve() - copy if port is None else port,
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
    knobs = search.knobs(node.untold, (os.cpu_count() or 2) // engines, fix or (), tried or ())
    plan = Plan(node.workloads, knobs, tolerance / 100, plain)
    conditions = node.conditions
    file = results_file or own / f"{node.named}-{request.gpu}-vllm-{request.vllm_version}.json"
    if dry_run:
        _print_plan(node, plan, results.read(file, conditions, afresh=afresh), file, as_json=as_json)
        return
    entry.look(known.path, name)  # before hours are spent
    above = replace(request, workspace=str(workspace))  # our own directory may not be there yet
    preflight(replace(prepared, request=above), clear_leftovers=False)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.results(file))
            found = results.read(file, conditions, afresh=afresh)
            found.write(file)
        except OSError as error:
            raise InputError(
                f"{file}: cannot keep results there ({error.strerror}); --results names another file"
            ) from None
        whole = _measure(node, plan, found, file, minutes=minutes, afresh=afresh)
    verdicts = report.verdicts(plan, found)
    for unjudged in (load for load in plan.workloads if load not in [verdict.workload for verdict in verdicts]):
        _log(f"nothing can be said of the load {unjudged.load} yet: the untold engine has not been under it")
    written = [_put(known.path, name, verdict, conditions, afresh=afresh) for verdict in verdicts]
    if as_json:
        loads = [{**verdict.data(), "written": done} for verdict, done in zip(verdicts, written, strict=True)]
        document = {"conditions": conditions, "whole": whole, "loads": loads, "results": str(file)}
        typer.echo(json.dumps({**document, "registry": str(known.path)}, indent=2))
        return
    launch = ["huddle", "launch", model, *(["--registry", str(known.path)] if registry_file else [])]
    for verdict, done in zip(verdicts, written, strict=True):
        typer.echo("\n".join(verdict.lines()))
        if done:
            words = shlex.join([*launch, "--load", verdict.workload.load])
            typer.echo(f"  written into {known.path}: `{words}` uses it on {request.gpu} from now on")


def _check_flags(fix: Sequence[str], tried: Sequence[str]) -> None:
    """See that they are names of flags, each in one option.

    Raises:
        InputError: one is not.
    """
    for option, given, names in (("--fix", fix, search.NAMES), ("--try", tried, search.ON_REQUEST)):
        if unknown := sorted({*given} - {*names}):
            raise InputError(f"{option} {unknown[0]!r} must be one of {', '.join(names)}")
    if both := sorted({*fix} & {*tried}):
        raise InputError(f"--fix {both[0]} and --try {both[0]} cannot be given together")


def _measure(
    node: Node, plan: Plan, found: results.Results, file: Path, *, minutes: float | None, afresh: bool
) -> bool:
    """Go through the plan; whether it came to its end. A stop ends the program, with all results kept."""
    again = "the same command without --afresh" if afresh else "the same command"
    limit_s = None if minutes is None else minutes * 60
    try:
        with stops.stoppable():
            whole = sweep.run(plan, found, file, node.measure, say=_log, limit_s=limit_s)
    except KeyboardInterrupt:
        _log(f"stopped; {len(plan.measured(found))} engines are in {file}, and {again} goes on from there")
        raise typer.Exit(ExitCode.FAILED) from None
    if not whole:
        _log(f"the time is over after {len(plan.measured(found))} engines; {again} goes on from there")
    return whole


def _put(path: Path, name: str, verdict: report.Verdict, conditions: Mapping[str, Any], *, afresh: bool) -> bool:
    """Write what was found into the registry; whether it is there now. Else why not is said."""
    load = verdict.workload.load
    if not verdict.compared:
        _log(f"nothing is written for the load {load}: no engine with other flags than untold was measured yet")
        return False
    found = verdict.tuned(conditions, datetime.datetime.now(datetime.UTC).date().isoformat())
    stands = entry.put(path, name, found, afresh=afresh)
    if stands is found:
        return True
    sweep_of = f"{'a whole' if stands.whole else 'a'} sweep of {stands.engines} engines ({stands.date})"
    this = f"this one has {found.engines}{'' if found.whole else ' so far'}"
    _log(f"{path} keeps for the load {load} what {sweep_of} found, and {this}; --afresh measures anew and replaces it")
    return False


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
