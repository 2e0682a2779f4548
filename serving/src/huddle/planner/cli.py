"""`huddle plan`: the planner's answer for people and, with --json, for programs."""

import json
from pathlib import Path
from typing import Annotated

import typer

from huddle import engine, planner, registry
from huddle.errors import ExitCode
from huddle.planner import explain as words
from huddle.registry import files

app = typer.Typer(add_completion=False)
MOST_GPUS = 64  # of one node: no machine has more; the search for a layout grows with it
MOST_NODES = 4_096
MOST_RANKS = MOST_GPUS * MOST_NODES


@app.command()
def plan(
    *,
    model: Annotated[str, typer.Argument(help="A name in the registry, or a repository id.")],
    gpu: Annotated[str, typer.Option(help="GPU type, such as h100-nvl, h100-sxm, h200, l40s.")] = "h100-nvl",
    gpus: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs in each node.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, max=MOST_NODES, help="Nodes.")] = 1,
    fabric: Annotated[str, typer.Option(help="Network between nodes: tcp-40g, roce-100g, ...")] = "tcp-40g",
    tp: Annotated[
        int | None, typer.Option(min=1, max=MOST_RANKS, help="Tensor parallel size; default: automatic.")
    ] = None,
    pp: Annotated[
        int | None, typer.Option(min=1, max=MOST_RANKS, help="Pipeline parallel size; default: automatic.")
    ] = None,
    max_model_len: Annotated[int | None, typer.Option(min=16, help="Longest sequence, tokens.")] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="Sequences at once.")] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(min=0.01, max=0.98, help="Share of GPU memory.")
    ] = None,
    allow_slow_fabric: Annotated[bool, typer.Option(help="Allow tensor parallel across nodes over TCP.")] = False,
    registry_file: Annotated[
        Path | None, typer.Option("--registry", envvar="HUDDLE_REGISTRY", help="Another models.yaml.")
    ] = None,
    store: Annotated[
        list[Path] | None, typer.Option(envvar="HUDDLE_MODELS", help="Model stores to look in for config.json.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the calculation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a model fits given GPUs, how to run it, and why. Exit code 2 when it does not."""
    files.check_stores(store or ())
    known = registry.load(registry_file)
    wanted = known.resolve(model).model
    engine.refuse_options(known, wanted)
    fit = planner.check(
        wanted,
        gpu=gpu,
        gpus_per_node=gpus,
        nodes=nodes,
        tp=tp,
        pp=pp,
        fabric=fabric,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        gpu_memory_utilization=gpu_memory_utilization,
        allow_slow_fabric=allow_slow_fabric,
        stores=store or (),
    )
    if as_json:
        typer.echo(json.dumps(words.data(fit), indent=2, ensure_ascii=False))
    elif explain:
        typer.echo(words.text(fit))
    else:
        typer.echo(fit.summary, err=not fit.fits)
        for sentence in fit.refusals or fit.notes:
            typer.echo(f"  {sentence}", err=not fit.fits)
    if not fit.fits:
        raise typer.Exit(ExitCode.BAD_INPUT)
