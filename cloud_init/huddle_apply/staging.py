"""Model files on the node's own NVMe: copied from the shared store, else fetched from the model hub.

Serving reads only this copy, so the store may be slow, busy or away. A copy that stops halfway goes on where it was.
A published model has a manifest (`huddle models publish`): every byte is checked against it on the way, because the
disk under a mount like ours may change. A model that somebody has copied there by hand is taken as it is.

An engine may restart at any moment, so new files are made complete beside the served ones and only then renamed into
place, all at once. The record is away meanwhile: a cut among the renames is finished by the next staging.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from . import commands, files
from .failure import ApplyError
from .layout import Layout
from .ledger import say

RECORD = ".staged.json"
MANIFEST = "huddle-manifest.json"
_PARTIAL = ".partial"
_CHUNK_BYTES = 16 * 1024**2
_REPORT_S = 10.0
_RESERVE_BYTES = 4 * 1024**3
_HUB_DEADLINE_S = 5400.0


@dataclass(frozen=True)
class Source:
    """One file of the store: path below the model's directory, bytes, last change (ns), digest if it is known."""

    path: str
    size: int
    changed: int
    sha256: str | None = None

    @property
    def partial(self) -> str:
        """Where it is copied to, beside its place: named by its content, so that no other file is ever continued."""
        key = self.sha256[:16] if self.sha256 else f"{self.size:x}-{self.changed:x}"
        return f"{self.path}.{key}{_PARTIAL}"


def in_store(layout: Layout, model: Mapping[str, Any]) -> bool:
    """Whether the shared store holds the model."""
    return (layout.model_store / str(model["directory"]) / "config.json").is_file()


def stage(layout: Layout, model: Mapping[str, Any], bundle: Path, token: str) -> None:
    """Make the model's copy on NVMe complete and current.

    Raises:
        ApplyError: neither the store nor the hub has it, or the disk is too small.
    """
    models = layout.workspace / "models"
    models.mkdir(exist_ok=True)
    with _alone(models):
        _stage(layout, model, bundle, token, models / model["directory"])


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One staging at a time: at boot the unit and huddle-apply may meet."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stage(layout: Layout, model: Mapping[str, Any], bundle: Path, token: str, target: Path) -> None:
    # Resolved once: a publication changes the link, and this copy must be of one version.
    origin = (layout.model_store / model["directory"]).resolve()
    record = files.read_json(target / RECORD)
    try:
        published = _digest(model, origin)
        if published is not None and record.get("digest") == published:
            return
        sources = tuple(_sources(origin))
    except OSError as error:
        raise _unreadable(origin, error) from error
    if sources:
        if published is not None or record.get("files") != _listing(sources):
            _copy(origin, target, sources, published)
        return
    if not record or record.get("revision", model["revision"]) != model["revision"]:
        _download(model, target, bundle, token)


def _digest(model: Mapping[str, Any], origin: Path) -> str | None:
    """The published version's digest; None for what was not published.

    Raises:
        ApplyError: the registry demands another one.
    """
    digest = files.read_json(origin / MANIFEST).get("digest")
    if digest is not None and model["digest"] not in (None, digest):
        raise ApplyError(f"the store's {model['name']} has digest {digest}, the registry says {model['digest']}")
    return digest


def _sources(origin: Path) -> Iterator[Source]:
    """The store's files; none when the model is not there. Links are followed: an alias shares its base's files."""
    if not (origin / "config.json").is_file():
        return
    known = files.read_json(origin / MANIFEST).get("files", {})
    for path in sorted(origin.rglob("*")):
        if path.is_file():
            facts, name = path.stat(), path.relative_to(origin).as_posix()
            yield Source(name, facts.st_size, facts.st_mtime_ns, known.get(name, {}).get("sha256"))


def _listing(sources: tuple[Source, ...]) -> list[list[Any]]:
    return [[source.path, source.size, source.changed] for source in sources]


def _unreadable(origin: Path, error: OSError) -> ApplyError:
    return ApplyError(f"{origin} cannot be read ({error.strerror or error}); is it being published?")


def _unwritable(target: Path, missing: int, error: OSError) -> ApplyError:
    """The local disk's failure, in words of its own: nothing is wrong with the store."""
    reason = f"{target} cannot be written ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ApplyError(
            f"{reason}: {missing / 1024**3:.1f} GiB of the model are still to be copied; remove models that are not "
            "served or other files from this disk, then apply again"
        )
    return ApplyError(
        f"{reason}; see dmesg and the directory's owner; if the disk is broken, deallocate the VM and start it"
    )


def _copy(origin: Path, target: Path, sources: tuple[Source, ...], published: str | None) -> None:
    progress = _Progress(sum(source.size for source in sources))
    try:
        _renew(origin, target, sources, progress)
        files.write_json(target / RECORD, {"files": _listing(sources), **({"digest": published} if published else {})})
    except OSError as error:  # the store's own are sentences already
        raise _unwritable(target, progress.missing, error) from error


def _renew(origin: Path, target: Path, sources: tuple[Source, ...], progress: _Progress) -> None:
    """Make the target's files the store's; its record is away as long as they are of two versions."""
    wanted = {source.path for source in sources}
    differing = [source for source in sources if not _is_current(target / source.path, source, progress)]
    partials = {source.partial for source in differing}
    _sweep(target, wanted | partials, f"*{_PARTIAL}")
    together = _fit_together(target, wanted | partials, differing)
    if together:
        for source in differing:
            _copy_file(origin / source.path, target / source.partial, source, progress)
    (target / RECORD).unlink(missing_ok=True)
    _sync(target)
    if not together:
        _sweep(target, wanted | partials)
    for source in differing:
        if not together:
            _copy_file(origin / source.path, target / source.partial, source, progress)
        (target / source.partial).replace(target / source.path)
    _sweep(target, wanted)
    for folder in {(target / source.path).parent for source in differing}:
        _sync(folder)


def _is_current(path: Path, source: Source, progress: _Progress) -> bool:
    if not path.is_file() or (path.stat().st_size, path.stat().st_mtime_ns) != (source.size, source.changed):
        return False
    if source.sha256 is not None and _hash(path) != source.sha256:
        return False
    progress.add(source.size)
    return True


def _others(target: Path, keep: set[str], pattern: str = "*") -> list[Path]:
    return [p for p in target.rglob(pattern) if p.is_file() and p.relative_to(target).as_posix() not in keep]


def _sweep(target: Path, keep: set[str], pattern: str = "*") -> None:
    for path in _others(target, keep, pattern):
        path.unlink()


def _sync(folder: Path) -> None:
    """Names that were made, changed or removed in a directory survive a power cut from here on."""
    if folder.is_dir():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _copy_file(origin: Path, partial: Path, source: Source, progress: _Progress) -> None:
    """Complete a file's partial copy: checked and synced."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    present = min(_size(partial), source.size)
    progress.add(present)
    digest = sha256()
    with partial.open("ab") as writing:
        if source.sha256 is not None and present:
            _hash_into(digest, partial, present)
        writing.truncate(present)
        for chunk in _chunks(origin, present):
            writing.write(chunk)
            digest.update(chunk)
            progress.add(len(chunk))
        writing.flush()
        os.utime(writing.fileno(), ns=(source.changed, source.changed))
        os.fsync(writing.fileno())
    if partial.stat().st_size != source.size:
        raise ApplyError(f"{origin} changed while it was copied; it is being published, apply again afterwards")
    if source.sha256 is not None and digest.hexdigest() != source.sha256:
        partial.unlink()
        raise ApplyError(f"{origin} is not what its manifest says: it is being published, or publish it again")


def _chunks(origin: Path, start: int) -> Iterator[bytes]:
    try:
        with origin.open("rb") as reading:
            reading.seek(start)
            while chunk := reading.read(_CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise _unreadable(origin, error) from error


def _hash(path: Path) -> str:
    digest = sha256()
    _hash_into(digest, path, path.stat().st_size)
    return digest.hexdigest()


def _hash_into(digest: Any, path: Path, count: int) -> None:
    with path.open("rb") as file:
        while count > 0 and (chunk := file.read(min(_CHUNK_BYTES, count))):
            digest.update(chunk)
            count -= len(chunk)


def _fit_together(target: Path, keep: set[str], differing: list[Source]) -> bool:
    """Whether the new files fit beside the old ones; if not, they replace them one by one.

    Raises:
        ApplyError: not even that fits.
    """
    missing = [source.size - min(_size(target / source.partial), source.size) for source in differing]
    existing = next(parent for parent in (target, *target.parents) if parent.is_dir())
    room = shutil.disk_usage(existing).free - _RESERVE_BYTES
    if sum(missing) <= max(room, 0):
        return True
    needed, peaks = -sum(_size(path) for path in _others(target, keep)), []
    for source, count in zip(differing, missing, strict=True):
        peaks.append(needed + count)
        needed += count - _size(target / source.path)
    if max(peaks) > room:
        free, most = (room + _RESERVE_BYTES) / 1024**3, max(*peaks, 0) / 1024**3
        raise ApplyError(
            f"{existing} has {free:.0f} GiB free, the model needs {most:.0f} GiB "
            f"and {_RESERVE_BYTES / 1024**3:.0f} GiB reserve; remove models that are not served"
        )
    say(
        f"{target} has no room for the old and the new files together: replacing one by one; "
        "an engine that restarts meanwhile may fail"
    )
    return False


def _download(model: Mapping[str, Any], target: Path, bundle: Path, token: str) -> None:
    """Ask the hub, with its own client from the bundle's environment; it resumes by itself."""
    program = bundle / "venv" / "bin" / "hf"
    if not program.is_file():
        raise ApplyError(f"{model['name']} is not in the model store, and the hub's client is not installed yet")
    say(f"{model['name']} is not in the model store; fetching {model['repository']} from the hub")
    revision = ["--revision", model["revision"]] if model["revision"] else []
    command = [str(program), "download", model["repository"], *revision, "--local-dir", str(target)]
    env = {"HF_TOKEN": token} if token else {}
    try:
        commands.run([*command, "--exclude", "original/*"], deadline_s=_HUB_DEADLINE_S, env=env)
    except ApplyError as failure:
        raise ApplyError(
            f"{model['name']} is neither in the model store nor to be had from the hub ({failure}); publish it to the "
            "store, or set the secret model_hub_token for a model that needs a licence",
            failure.log,
        ) from failure
    files.write_json(target / RECORD, {"revision": model["revision"]})


class _Progress:
    """A line every few seconds: a copy of 150 GB takes minutes."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._reported = total, 0, time.monotonic()

    @property
    def missing(self) -> int:
        """Bytes that are not here yet."""
        return max(self._total - self._done, 0)

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._reported > _REPORT_S:
            self._reported = time.monotonic()
            share = 100 * self._done // max(self._total, 1)
            say(f"staging: {self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB ({share} %)")
