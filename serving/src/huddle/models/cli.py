"""`huddle models`: what the registry serves, and whether it and the files behind it are sound."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from huddle import engine, registry, shapes
from huddle.errors import InputError
from huddle.publish import cli as publishing
from huddle.registry import Registry, RegistryError, Served, files
from huddle.registry.prompts import find_chat_template, read_model_info, read_system_prompt

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="List the registry's models; publish to and inspect the shared model store.",
)
for _command in (publishing.publish, publishing.published, publishing.verify, publishing.rollback, publishing.remove):
    app.command()(_command)

RegistryFile = Annotated[
    Path | None, typer.Option("--registry", envvar="HUDDLE_REGISTRY", help="A models.yaml in place of the shipped one.")
]
Stores = Annotated[
    list[Path] | None,
    typer.Option("--store", envvar="HUDDLE_MODELS", help="Model stores, in order; repeat it, or separate by ':'."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_models(*, registry_file: RegistryFile = None, as_json: AsJson = False) -> None:
    """List every served name."""
    known = registry.load(registry_file)
    if as_json:
        typer.echo(json.dumps([_row(served) for served in known.served], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "model", "size", "GPUs", "context", "description"):
        table.add_column(heading, justify="right" if heading in {"size", "GPUs", "context"} else "left")
    for served in known.served:
        row = _row(served)
        what = f"alias of {row['base']}" if served.alias else row["model"]
        size = f"{row['parameters'] / 1e9:.1f} B" if row["parameters"] else "?"
        context = f"{row['max_model_len']:,}" if row["max_model_len"] else "model's"
        table.add_row(served.name, what, size, str(row["gpus"]), context, served.entry.description)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table)


@app.command()
def show(
    name: publishing.Name, *, registry_file: RegistryFile = None, store: Stores = None, as_json: AsJson = False
) -> None:
    """Show one served name with its prompt's hash and where its files lie."""
    known = registry.load(registry_file)
    served = known.resolve(name)
    files.check_stores(store or [])
    stores = store or list(files.DEFAULT_STORES)
    prompt = read_system_prompt(known, served, stores)
    entry: dict[str, Any] = {
        **_row(served),
        "served_names": known.served_names(name),
        "settings": served.model.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude={"name"}),
        "system_prompt": {"sha256": prompt.sha256, "file": str(prompt.path)} if prompt else None,
        "files": str(files.locate(served.model, stores) or "") or None,
    }
    if as_json:
        typer.echo(json.dumps(entry, indent=2))
        return
    for key, value in entry.items():
        if value is None:
            typer.echo(f"{key}: -")
        elif isinstance(value, dict):
            typer.echo(f"{key}:")
            for inner, item in value.items():
                typer.echo(f"  {inner}: {item}")
        else:
            typer.echo(f"{key}: {', '.join(value) if isinstance(value, tuple) else value}")


@app.command()
def validate(*, registry_file: RegistryFile = None, store: Stores = None, as_json: AsJson = False) -> None:
    """Check the registry, prompts, cards, options against the pinned vLLM and, with --store, the models' files."""
    known = registry.load(registry_file)
    files.check_stores(store or [])
    problems = [sentence for served in known.served for sentence in _problems(known, served, store or [])]
    if problems:
        raise RegistryError(*problems)
    if as_json:
        typer.echo(json.dumps({"ok": True, "models": len(known.models), "aliases": len(known.aliases)}))
    else:
        aliases = "one alias" if len(known.aliases) == 1 else f"{len(known.aliases)} aliases"
        typer.echo(f"{known.path}: {len(known.models)} models and {aliases}, no problem found")


def _problems(known: Registry, served: Served, stores: list[Path]) -> list[str]:
    """Everything wrong with one served name beyond the registry's own text."""
    found: list[str] = []
    for read in (read_system_prompt, read_model_info):
        try:
            read(known, served, stores)
        except RegistryError as error:
            found += error.sentences
    if served.alias:
        return found
    try:
        engine.refuse_options(known, served.model)
    except InputError as error:
        found += error.sentences
    directory = files.locate(served.model, stores)
    try:
        find_chat_template(known, served.model, directory)
        if directory:
            files.check(directory)
    except InputError as error:
        found += error.sentences
    return found


def _row(served: Served) -> dict[str, Any]:
    model = served.model
    try:
        parameters = shapes.for_model(model).parameters
    except shapes.ShapeError:
        parameters = None
    return {
        "name": served.name,
        "base": served.alias.base if served.alias else None,
        "model": model.model,
        "description": served.entry.description,
        "licence": model.licence,
        "gated": model.gated,
        "parameters": parameters,
        "gpus": model.tensor_parallel_size * model.pipeline_parallel_size,
        "max_model_len": model.max_model_len,
    }
