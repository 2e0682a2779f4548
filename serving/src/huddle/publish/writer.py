"""Bring one version of a model into a store: copy, verify, name, switch. Cut off anywhere, the store stays whole."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huddle import whole_file
from huddle.errors import HuddleError
from huddle.publish import manifest
from huddle.publish.manifest import FileFacts, Manifest
from huddle.publish.paths import StorePaths, sync_directory
from huddle.publish.source import Source

RESERVE_BYTES = 1024**3
"""Left free on the store: ext4 slows down when it is full."""
_RECORD = ".copied.json"
_PARTIAL = ".partial"
_CHUNK_BYTES = 16 * 1024**2
_GIB = 1024**3

Step = Callable[[str], None]
Progress = Callable[[int, int], None]


class PublishError(HuddleError):
    """The publication did not succeed; what counted before still counts."""


class NoSpaceError(PublishError):
    """The store is too small."""


@dataclass(frozen=True)
class Published:
    """What came of it. `changed`: whether another version counts now; `repaired`: damaged files that were replaced."""

    model: str
    directory: str
    version: str
    digest: str
    bytes: int
    changed: bool
    removed: tuple[str, ...]
    repaired: tuple[str, ...]


def publish(
    source: Source,
    store: StorePaths,
    *,
    expected_digest: str | None = None,
    step: Step = lambda _: None,
    progress: Progress = lambda _done, _total: None,
    reserve_bytes: int = RESERVE_BYTES,
) -> Published:
    """Copy, verify, switch and tidy up. Run again after a cut, it goes on where it was.

    `step` gets the name of each step before it is taken; `progress` gets the copied and the total bytes.

    Raises:
        PublishError: no space, a file that changed or cannot be read back, or another digest than the registry's.
    """
    before = store.current(source.directory)
    incoming = store.incoming(source.directory)
    step("space")
    copied = _Record.open(incoming, source)
    _require_space(source, copied, store, reserve_bytes)
    incoming.mkdir(parents=True, exist_ok=True)
    copied.drop_others()
    made = Manifest(
        source.model, {**_copy(source, incoming, copied, step, progress), **source.linked}, dict(source.links)
    )
    if expected_digest is not None and made.digest != expected_digest:
        raise PublishError(
            f"the files of {source.model} have digest {made.digest}, the registry says {expected_digest}; "
            "they are another revision or damaged, and were not published"
        )
    step("link")
    for path, target in source.links.items():
        _link(incoming / path, target)
    step("verify")
    _read_back(made, incoming, source)
    step("manifest")
    whole_file.write(incoming / manifest.FILE, made.text().encode(), lasting=True)
    copied.forget()
    _sync_tree(incoming)
    step("name")
    repaired = store.accept(source.directory, made.version)
    step("switch")
    store.switch(source.directory, made.version)
    step("garbage")
    removed = store.collect_garbage(source.directory)
    step("done")
    changed = before != made.version
    return Published(source.model, source.directory, made.version, made.digest, made.size, changed, removed, repaired)


class _Record:
    """Which files are copied already, from what: size and time of the source, and the digest seen while copying."""

    def __init__(self, incoming: Path, source: Source, known: dict[str, Any]) -> None:
        self._incoming, self._source, self._known = incoming, source, known

    @classmethod
    def open(cls, incoming: Path, source: Source) -> "_Record":
        try:
            known = json.loads((incoming / _RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        return cls(incoming, source, known if isinstance(known, dict) else {})

    def facts(self, path: str) -> FileFacts | None:
        """Of a file that need not be copied again."""
        entry, target = self._known.get(path), self._incoming / path
        if entry is None or entry["source"] != _identity(self._source.files[path]) or target.is_symlink():
            return None
        if not target.is_file() or target.stat().st_size != entry["size"]:
            return None
        return FileFacts(entry["size"], entry["sha256"])

    def done(self, path: str, facts: FileFacts) -> None:
        """Note a copied file, so that a second attempt leaves it out."""
        self._known[path] = {**vars(facts), "source": _identity(self._source.files[path])}
        whole_file.write(self._incoming / _RECORD, json.dumps(self._known).encode(), lasting=True)

    def drop_others(self) -> None:
        """Remove what an earlier attempt left that this one does not use."""
        wanted = {self._incoming / path for path in self._source.files}
        wanted |= {self._incoming / _RECORD}
        for path in self._incoming.rglob("*"):
            if (path.is_symlink() or path.is_file()) and path not in wanted:
                path.unlink()

    def forget(self) -> None:
        """Remove the record: the version is complete."""
        (self._incoming / _RECORD).unlink(missing_ok=True)


def _identity(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]


def _require_space(source: Source, copied: _Record, store: StorePaths, reserve_bytes: int) -> None:
    needed = sum(path.stat().st_size for name, path in source.files.items() if copied.facts(name) is None)
    free = shutil.disk_usage(store.root).free
    missing = needed + reserve_bytes - free
    if missing > 0:
        raise NoSpaceError(
            f"{store.root} lacks {missing / _GIB:.1f} GiB for {source.model}: {needed / _GIB:.1f} GiB to copy and "
            f"{reserve_bytes / _GIB:.1f} GiB reserve, {free / _GIB:.1f} GiB free; remove models that are not served "
            "(`huddle models remove`) or enlarge the disk"
        )


def _copy(source: Source, incoming: Path, copied: _Record, step: Step, progress: Progress) -> dict[str, FileFacts]:
    """Copy what is missing; the digests are of what was read from the source."""
    total = sum(path.stat().st_size for path in source.files.values())
    done, facts = 0, {}
    for name, path in source.files.items():
        known = copied.facts(name)
        if known is None:
            step(f"copy {name}")
            identity = _identity(path)
            known = _copy_file(path, incoming / name, lambda count, base=done: progress(base + count, total))  # type: ignore[misc]
            if _identity(path) != identity or known.size != identity[0]:
                raise PublishError(f"{path}: changed while it was copied; publish again when it is complete")
            copied.done(name, known)
        facts[name] = known
        done += known.size
        progress(done, total)
    return facts


def _copy_file(origin: Path, target: Path, report: Callable[[int], None]) -> FileFacts:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + _PARTIAL)
    digest, size = hashlib.sha256(), 0
    try:
        with origin.open("rb") as reading, partial.open("wb") as writing:
            while chunk := reading.read(_CHUNK_BYTES):
                writing.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                report(size)
            writing.flush()
            os.fsync(writing.fileno())
    except OSError as error:
        raise PublishError(f"{target}: cannot be written ({error.strerror or error}); nothing was switched") from error
    partial.replace(target)
    target.chmod(0o644)
    return FileFacts(size, digest.hexdigest())


def _read_back(made: Manifest, incoming: Path, source: Source) -> None:
    """Compare what lies on the disk, not what is still in memory, with what was read from the source."""
    for name in source.files:
        path = incoming / name
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if manifest.hash_file(path) != made.files[name]:
            path.unlink()  # so that the next attempt copies it again
            raise PublishError(f"{path}: reads back differently from what was copied; the disk may be failing")


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _sync_tree(folder: Path) -> None:
    for path in (*(p for p in folder.rglob("*") if p.is_dir() and not p.is_symlink()), folder):
        sync_directory(path)
