"""The commands of `huddle models` that change or check a store."""

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from huddle import registry
from huddle.publish import hub, manifest, place, source, writer
from huddle.publish.paths import StoreError, StorePaths
from huddle.publish.writer import Published
from huddle.registry import Registry, Served

RegistryFile = Annotated[
    Path | None, typer.Option("--registry", envvar="HUDDLE_REGISTRY", help="A models.yaml in place of the shipped one.")
]
StoreDirectory = Annotated[
    Path | None, typer.Option("--store", help="A directory as the store, instead of this node's model disk.")
]
Name = Annotated[str, typer.Argument(help="A served name; `huddle models list` shows them.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_REPORT_S = 5.0


def publish(
    name: Name,
    *,
    origin: Annotated[
        Path | None,
        typer.Option("--from", help="Directory with the files; without it they come from the hub (aliases: shipped)."),
    ] = None,
    store: StoreDirectory = None,
    format_device: Annotated[
        Path | None, typer.Option("--format", help="Make this disk the store if it is blank; must be the model disk.")
    ] = None,
    registry_file: RegistryFile = None,
    as_json: AsJson = False,
) -> None:
    """Publish a model (or an alias) to the store: copy, verify, switch at once. Serving goes on meanwhile."""
    known = registry.load(registry_file)
    served = known.resolve(name)
    writing = place.for_writing(store, format_device)
    fetched = origin
    if served.alias is None:
        fetched = origin or hub.download(served.model)
        source.of_model(served, fetched)  # refused before the store is touched
    with writing.writable():
        done = [_publish(known, served, fetched, writing.paths)]
        done += [_publish(known, alias, None, writing.paths) for alias in _aliases(known, served, writing.paths)]
    if as_json:
        typer.echo(json.dumps({"ok": True, "published": [vars(one) for one in done]}, indent=2))
        return
    for one in done:
        what = "published" if one.changed else "is published already:"
        if one.repaired:
            what = f"was damaged, {', '.join(one.repaired)} replaced:"
        typer.echo(f"{one.model} {what} version {one.version} ({one.bytes / 1e9:.1f} GB, {one.digest[:19]}…)")
    if any(one.changed for one in done):
        typer.echo("nodes take it when a bundle is applied to them: docs/runbooks/models.md")


def published(*, store: StoreDirectory = None, as_json: AsJson = False) -> None:
    """List what the store holds."""
    paths = place.for_reading(store)
    rows = [_row(paths, directory) for directory in sorted(paths.directories())]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        size = f"{row['bytes'] / 1e9:.1f} GB" if row["bytes"] is not None else "unreadable"
        typer.echo(f"{row['directory']}  {row['version']}  {size}  before: {row['previous'] or 'none'}")
    if not rows:
        typer.echo(f"{paths.root} holds no published model")


def verify(
    name: Name, *, store: StoreDirectory = None, registry_file: RegistryFile = None, as_json: AsJson = False
) -> None:
    """Read a published model and compare every file with its manifest."""
    served = registry.load(registry_file).resolve(name)
    paths = place.for_reading(store)
    directory = served.entry.store_directory
    version = _current(paths, served)
    found = manifest.read(paths.version(directory, version))
    manifest.verify(found, paths.version(directory, version))
    if as_json:
        typer.echo(json.dumps({"ok": True, "version": version, "digest": found.digest, "files": len(found.files)}))
    else:
        typer.echo(f"{served.name}: version {version}, {len(found.files)} files, all as the manifest says")


def rollback(
    name: Name, *, store: StoreDirectory = None, registry_file: RegistryFile = None, as_json: AsJson = False
) -> None:
    """Make the previous version current again."""
    served = registry.load(registry_file).resolve(name)
    writing = place.for_writing(store, None)
    with writing.writable():
        paths, directory = writing.paths, served.entry.store_directory
        before, wanted = _current(paths, served), paths.previous(directory)
        if wanted is None or wanted == before:
            raise StoreError(f"{served.name} has no version before {before} in {paths.root}")
        paths.switch(directory, wanted)
    if as_json:
        typer.echo(json.dumps({"ok": True, "version": wanted, "before": before}))
    else:
        typer.echo(f"{served.name}: version {wanted} is current again (before: {before})")


def remove(
    name: Name, *, store: StoreDirectory = None, registry_file: RegistryFile = None, as_json: AsJson = False
) -> None:
    """Remove a model from the store, all its versions. Nodes that serve it keep their own copies."""
    known = registry.load(registry_file)
    served = known.resolve(name)
    writing = place.for_writing(store, None)
    with writing.writable():
        paths = writing.paths
        version = _current(paths, served)
        aliases = [one.name for one in _aliases(known, served, paths)]
        if aliases:
            raise StoreError(f"{', '.join(aliases)} links to the files of {served.name}; remove that first")
        paths.remove(served.entry.store_directory)
    if as_json:
        typer.echo(json.dumps({"ok": True, "removed": version}))
    else:
        typer.echo(f"{served.name} removed from {paths.root}")


def _publish(known: Registry, served: Served, origin: Path | None, paths: StorePaths) -> Published:
    if served.alias is not None:
        made, expected = source.of_alias(known, served, origin, paths), None
    else:
        assert origin is not None  # noqa: S101 - publish() has fetched it
        made, expected = source.of_model(served, origin), served.model.digest
    return writer.publish(made, paths, expected_digest=expected, step=_Steps(served.name), progress=_Bytes(served.name))


def _aliases(known: Registry, served: Served, paths: StorePaths) -> list[Served]:
    """The published aliases of a base model."""
    if served.alias is not None:
        return []
    found = (one for one in known.served if one.alias is not None and one.alias.base == served.model.name)
    return [one for one in found if paths.current(one.entry.store_directory) is not None]


def _current(paths: StorePaths, served: Served) -> str:
    version = paths.current(served.entry.store_directory)
    if version is None:
        raise StoreError(f"{served.name} is not published in {paths.root}; `huddle models published` lists what is")
    return version


def _row(paths: StorePaths, directory: str) -> dict[str, Any]:
    version = paths.current(directory)
    row: dict[str, Any] = {"directory": directory, "version": version, "previous": paths.previous(directory)}
    try:
        found = manifest.read(paths.version(directory, version)) if version else None
    except manifest.ManifestError:
        found = None
    return {
        **row,
        "model": found.model if found else None,
        "bytes": found.size if found else None,
        "digest": found.digest if found else None,
        "versions": list(paths.known(directory)),
    }


class _Steps:
    """A line for each step that takes long."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, step: str) -> None:
        if step in ("verify", "switch"):
            sys.stderr.write(f"{self._name}: {'reading back' if step == 'verify' else 'switching'}\n")


class _Bytes:
    """A line every few seconds."""

    def __init__(self, name: str) -> None:
        self._name, self._reported = name, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._reported >= _REPORT_S:
            self._reported = time.monotonic()
            sys.stderr.write(f"{self._name}: copied {done / 1e9:.1f} of {total / 1e9:.1f} GB\n")
