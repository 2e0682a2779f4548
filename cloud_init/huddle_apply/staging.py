"""Model files on the node's own NVMe: copied from the shared store, else fetched from the model hub.

Serving reads only this copy, so the store may be slow, busy or away. A copy that stops halfway goes on where it was.
A published model has a manifest (`huddle models publish`): every byte is checked against it on the way, because the
disk under a mount like ours may change. A model that somebody has copied there by hand is taken as it is.
"""

from __future__ import annotations

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
        if sources:
            if published is not None or record.get("files") != _listing(sources):
                _copy(origin, target, sources, published)
            return
    except OSError as error:
        raise ApplyError(f"{origin} cannot be read ({error.strerror or error}); is it being published?") from error
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


def _copy(origin: Path, target: Path, sources: tuple[Source, ...], published: str | None) -> None:
    (target / RECORD).unlink(missing_ok=True)
    progress = _Progress(sum(source.size for source in sources))
    needed = sum(source.size - _present(target, source) for source in sources)
    _require_space(target, needed)
    for source in sources:
        _copy_file(origin / source.path, target / source.path, source, progress)
    wanted = {source.path for source in sources}
    for path in [path for path in target.rglob("*") if path.is_file()]:
        if path.relative_to(target).as_posix() not in wanted:
            path.unlink()
    files.write_json(target / RECORD, {"files": _listing(sources), **({"digest": published} if published else {})})


def _present(target: Path, source: Source) -> int:
    """Bytes of a file that are here already."""
    done, partial = target / source.path, target / (source.path + _PARTIAL)
    if done.is_file() and done.stat().st_size == source.size and done.stat().st_mtime_ns == source.changed:
        return source.size
    return min(partial.stat().st_size, source.size) if partial.is_file() else 0


def _copy_file(origin: Path, target: Path, source: Source, progress: _Progress) -> None:
    present = _present(target.parent, Source(target.name, source.size, source.changed))
    progress.add(present)
    if target.is_file() and present == source.size and (source.sha256 is None or _hash(target) == source.sha256):
        return
    partial = target.with_name(target.name + _PARTIAL)
    target.parent.mkdir(parents=True, exist_ok=True)
    present = min(partial.stat().st_size, source.size) if partial.is_file() else 0
    digest = sha256()
    with origin.open("rb") as reading, partial.open("ab") as writing:
        if source.sha256 is not None and present:
            _hash_into(digest, partial, present)
        reading.seek(present)
        writing.truncate(present)
        while chunk := reading.read(_CHUNK_BYTES):
            writing.write(chunk)
            digest.update(chunk)
            progress.add(len(chunk))
        writing.flush()
        os.fsync(writing.fileno())
    if partial.stat().st_size != source.size:
        raise ApplyError(f"{origin} changed while it was copied; it is being published, apply again afterwards")
    if source.sha256 is not None and digest.hexdigest() != source.sha256:
        partial.unlink()
        raise ApplyError(f"{origin} is not what its manifest says: it is being published, or publish it again")
    os.utime(partial, ns=(source.changed, source.changed))
    partial.replace(target)


def _hash(path: Path) -> str:
    digest = sha256()
    _hash_into(digest, path, path.stat().st_size)
    return digest.hexdigest()


def _hash_into(digest: Any, path: Path, count: int) -> None:
    with path.open("rb") as file:
        while count > 0 and (chunk := file.read(min(_CHUNK_BYTES, count))):
            digest.update(chunk)
            count -= len(chunk)


def _require_space(target: Path, needed: int) -> None:
    existing = next(parent for parent in (target, *target.parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    if needed + _RESERVE_BYTES > free:
        raise ApplyError(
            f"{existing} has {free / 1024**3:.0f} GiB free, the model needs {needed / 1024**3:.0f} GiB "
            f"and {_RESERVE_BYTES / 1024**3:.0f} GiB reserve; remove models that are not served"
        )


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

    def add(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._reported > _REPORT_S:
            self._reported = time.monotonic()
            share = 100 * self._done // max(self._total, 1)
            say(f"staging: {self._done / 1e9:.1f} of {self._total / 1e9:.1f} GB ({share} %)")
