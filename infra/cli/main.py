"""`infra`: the operator's command line. Wrong input ends with one sentence for each fault and exit code 2."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from huddle import command_line
from huddle.errors import Fault, HuddleError, InputError
from infra import program, targets
from infra.cli import edge, leftovers, nodes, proof
from infra.cli import gateway as gateway_cli
from infra.cli import status as status_cli
from plan import stack_file

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plan, rehearse and operate a private LLM service. No command here creates resources in Azure.",
)
Stack = Annotated[str, typer.Option("--stack", "-s", help="Stack name: stacks/Pulumi.<stack>.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
app.add_typer(gateway_cli.keys, name="keys")
app.command()(gateway_cli.products)
app.command()(leftovers.leaks)
app.command()(leftovers.purge)
app.command()(nodes.start)
app.command()(proof.prove)
app.command()(status_cli.status)
out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the command line; exit code 2 and one sentence a fault for bad input, on stdout as JSON with --json."""
    try:
        command_line.run(app, "infra")
    except HuddleError as error:
        if "--json" in sys.argv:
            _print_json({"faults": [vars(fault) for fault in error.faults]})
        sys.exit(edge.say(error))


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, sort_keys=True))


@app.command()
def stacks(as_json: Json = False) -> None:
    """List the stacks of this project."""
    names = stack_file.names()
    _print_json(names) if as_json else typer.echo("\n".join(names))


@app.command()
def validate(stack: Stack = "dev", as_json: Json = False) -> None:
    """Check a stack: its file, every rule, and all that `up` would send."""
    faults: list[dict[str, str]] = []
    status, verdict = 0, ""
    try:
        plan = program.load_plan(stack)
        verdict = f"{stack_file.label(stack)} is valid: {targets.of(plan.target).headline(plan)}"
    except InputError as error:
        faults, status = [vars(fault) for fault in error.faults], edge.say(error)
    warnings = _warnings(stack)
    if as_json:
        _print_json({"faults": faults, "warnings": warnings})
    else:
        for warning in warnings:
            typer.echo(f"warning: {warning}", err=True)
        if verdict:
            typer.echo(verdict)
    raise typer.Exit(status)


def _warnings(stack: str) -> list[str]:
    """The warnings of a stack whose settings can be read; of another, only its faults are told."""
    try:
        return program.warnings(stack)
    except InputError:
        return []


@app.command()
def plan(stack: Stack = "dev", as_json: Json = False) -> None:
    """Show what a stack will be: names, addresses, nodes, models, gateway, cost."""
    from infra.reports import plan_json  # noqa: PLC0415 - rich tables only where they are shown

    loaded = program.load_plan(stack)
    if as_json:
        _print_json(plan_json.to_json(loaded))
    else:
        plan_json.show(loaded, targets.of(loaded.target).summary(loaded), out)


@app.command()
def ports(stack: Stack = "dev", as_json: Json = False) -> None:
    """Show the port table: who listens, on what, who may call."""
    from infra.reports import ports_view  # noqa: PLC0415

    loaded = program.load_azure_plan(stack)
    if as_json:
        _print_json(ports_view.to_json(loaded))
    else:
        ports_view.show(loaded, out)


@app.command()
def cost(stack: Stack = "dev", as_json: Json = False) -> None:
    """Estimate what a stack costs each month, from verified list prices."""
    from infra.reports import cost as cost_report  # noqa: PLC0415

    plan = program.load_plan(stack)
    estimate = targets.of(plan.target).estimate(plan)
    if as_json:
        _print_json(cost_report.to_json(estimate))
    else:
        cost_report.show(estimate, out)


@app.command()
def usage(
    stack: Stack = "dev",
    tokens: Annotated[
        Path | None, typer.Option(help="Token counts by subscription: JSON or CSV (docs/gateway/usage.md).")
    ] = None,
    hours: Annotated[float, typer.Option(help="Hours that the nodes ran in the period.")] = 730.0,
    query: Annotated[bool, typer.Option("--query", help="Print the Kusto query that returns the counts.")] = False,
    as_json: Json = False,
) -> None:
    """Divide what the nodes cost by the tokens of each product; idle capacity is shown by itself."""
    from infra.reports.usage import report as usage_report  # noqa: PLC0415
    from infra.reports.usage import token_file as usage_file  # noqa: PLC0415

    if query:
        from components import queries  # noqa: PLC0415 - brings in Pulumi

        typer.echo(queries.query("tokens_by_subscription"))
        return
    if tokens is None:
        raise InputError(Fault("--tokens", "", "is required: a file of token counts; `--query` prints how to get one"))
    loaded = program.load_azure_plan(stack)
    uses = usage_file.read(tokens)
    settled = usage_report.bill(loaded, uses, hours, file=f"stacks/Pulumi.{stack}.yaml")
    if as_json:
        _print_json(usage_report.to_json(loaded, settled, hours))
    else:
        usage_report.show(loaded, settled, hours, out)


@app.command()
def tree(stack: Stack = "dev", as_json: Json = False) -> None:
    """Show every resource that the program registers, as a tree."""
    from infra import graph  # noqa: PLC0415
    from infra.reports import resource_graph, tree_view  # noqa: PLC0415

    resources = graph.registered(program.load_plan(stack))
    if as_json:
        typer.echo(resource_graph.as_json(resources))
    else:
        out.print(tree_view.render(resources, stack))


@app.command()
def policies(
    stack: Stack = "dev",
    as_json: Json = False,
    to: Annotated[Path | None, typer.Option("--out", help="Write each policy to a file in this new directory.")] = None,
) -> None:
    """Show the gateway's policies, exactly as they are sent, with the scope that each goes to."""
    from infra.reports import policies_view  # noqa: PLC0415 - brings in Pulumi

    found = policies_view.of(program.load_azure_plan(stack))
    if to is not None:
        for path in policies_view.write(found, to):
            typer.echo(f"wrote {path}", err=True)
    if as_json:
        _print_json(policies_view.to_json(found))
    elif to is None:
        policies_view.show(found, out)


@app.command()
def docs() -> None:
    """Write the generated documents: settings and ports reference, pictures."""
    from infra.cli import documents  # noqa: PLC0415

    for path in documents.write_all(stack_file.ROOT):
        typer.echo(path)


@app.command()
def rehearse(
    stack: Stack = "dev",
    as_json: Json = False,
    faults: Annotated[
        Path | None,
        typer.Option(help="Faults to inject: a file (simulator/README.md).", exists=True),
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Keep state and logs in this new directory.")] = None,
    stacks_dir: Annotated[
        Path, typer.Option(help="Directory of the stack file; its name must be `stacks`.", exists=True)
    ] = stack_file.ROOT / "stacks",
) -> None:
    """Live through the whole life of a stack: the real engine, a simulated Azure, no cloud, no cost."""
    from infra.rehearsal import command as rehearsal  # noqa: PLC0415 - brings in Pulumi

    if keep is not None and keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        reason = "is not empty" if keep.is_dir() else "is no directory"
        raise InputError(Fault(str(keep), "", f"{reason}; name a new directory"))
    if stacks_dir.resolve().name != "stacks":
        raise InputError(Fault("--stacks-dir", "", f"{stacks_dir} is not allowed; allowed: a directory named stacks"))
    directory = keep or Path(tempfile.mkdtemp(prefix="rehearsal-"))
    try:
        succeeded = rehearsal.run(
            stack,
            directory,
            console=err if as_json else out,
            root=stacks_dir.resolve().parent,
            faults=faults,
            keep=keep is not None,
            as_json=as_json,
        )
    except KeyboardInterrupt:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
        _interrupted(keep)
    if not succeeded:
        _fail()


def _interrupted(keep: Path | None) -> NoReturn:
    """Leave at once: the engine's helpers may still be writing to threads that nobody waits for."""
    kept = f"what was simulated is in {keep}" if keep else "nothing is left"
    print(f"\ninterrupted: {kept}", file=sys.stderr, flush=True)
    os._exit(EXIT_INTERRUPTED)


def _fail() -> NoReturn:
    raise typer.Exit(1)


if __name__ == "__main__":
    main()
