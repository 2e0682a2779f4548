"""What a publication takes from: a directory with a model's files, or an alias's own files over a published base."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from huddle.errors import InputError
from huddle.publish import manifest
from huddle.publish.manifest import FileFacts, Manifest, ManifestError
from huddle.publish.paths import StorePaths
from huddle.registry import Registry, Served, files

_SKIPPED = frozenset({"original", ".cache", ".git", "__pycache__"})
"""Folders that no engine reads: the hub's second copy of Llama's weights, and what tools leave behind."""
_MARKS = frozenset({manifest.FILE, ".staged.json"})
"""What the store and a node's copy say of themselves: true there only."""
_UNFINISHED = (".incomplete", ".partial")


class SourceError(InputError):
    """What should be published is not there or not fit."""


@dataclass(frozen=True)
class Source:
    """Files to copy (path in the version -> where it is), and links into another version with the facts behind them."""

    model: str
    directory: str
    files: Mapping[str, Path]
    links: Mapping[str, str] = field(default_factory=dict)
    linked: Mapping[str, FileFacts] = field(default_factory=dict)


def of_model(served: Served, directory: Path) -> Source:
    """A base model from a directory.

    Raises:
        HuddleError: the directory lacks something that an engine needs.
    """
    if not directory.is_dir():
        raise SourceError(f"{directory}: is no directory; give the one that holds {served.name}'s config.json")
    files.check(directory)
    return Source(served.name, served.model.store_directory, dict(_found(directory)))


def of_alias(known: Registry, served: Served, own: Path | None, store: StorePaths) -> Source:
    """An alias: links to every file of its base's published version, and its own prompt and card beside them.

    `own`: a directory with the alias's own files; else those that are published already, else the registry's.

    Raises:
        SourceError: the base is not published, or there are no files of its own.
    """
    assert served.alias is not None  # noqa: S101 - the caller has looked
    base, directory = served.model.store_directory, served.alias.store_directory
    version = store.current(base)
    if version is None:
        raise SourceError(
            f"{served.name} is an alias of {served.model.name}, which is not published yet; publish that first"
        )
    mine = _own_files(known, served.name, directory, own, store)
    whole = manifest.read(store.version(base, version))
    # From <store>/.versions/<alias>/<version>/<path> up to <store>/.versions, and down again to the base's version.
    up = len(Path(directory).parts) + 1
    links = {
        path: os.path.join(*[".."] * (up + len(Path(path).parts) - 1), base, version, path)  # noqa: PTH118 - relative
        for path in whole.files
        if path not in mine
    }
    return Source(served.name, directory, mine, links, {path: whole.files[path] for path in links})


def _own_files(known: Registry, name: str, directory: str, given: Path | None, store: StorePaths) -> dict[str, Path]:
    version = store.current(directory)
    if given is None and version is not None:
        folder = store.version(directory, version)
        try:
            before = manifest.read(folder)
            mine = {path: facts for path, facts in before.files.items() if path not in before.links}
            # Else a damaged prompt would be published as a new version and count as what was meant.
            manifest.verify(Manifest(name, mine), folder)
        except ManifestError as error:
            raise SourceError(f"{error}, with {name}'s own files by --from: those in the store are damaged") from error
        return {path: folder / path for path in mine}
    folder = given or known.path.parent / "models" / directory
    if not folder.is_dir():
        raise SourceError(f"{folder}: is no directory; give the one with {name}'s own files by --from")
    return dict(_found(folder))


def _unreadable(error: OSError) -> None:
    raise SourceError(f"{error.filename}: cannot be read ({error.strerror}); repair it or remove it") from error


def _found(directory: Path) -> Iterator[tuple[str, Path]]:
    """Files below a directory; a link counts as the file behind it, as in the hub's cache."""
    for folder, names, found in os.walk(directory, followlinks=True, onerror=_unreadable):
        names[:] = sorted(name for name in names if name not in _SKIPPED)
        for name in names:
            path = Path(folder, name)
            if path.is_symlink() and Path(folder).resolve().is_relative_to(path.resolve()):
                raise SourceError(f"{path}: links to a folder that it lies in; remove the link")
        for name in sorted(found):
            path = Path(folder) / name
            if name in _MARKS or name.endswith(_UNFINISHED):
                continue
            if not path.is_file():
                raise SourceError(f"{path}: is no file that can be read; remove it or repair the link")
            yield path.relative_to(directory).as_posix(), path
