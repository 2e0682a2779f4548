"""Model files on the node's own NVMe: copied from the shared store, else fetched from the model hub.

Serving reads only this copy, so the store may be slow, busy or away. A copy that stops halfway goes on where it was.
A published model has a manifest (`huddle models publish`): every byte is checked against it on the way, because the
disk under a mount like ours may change. A model that somebody has copied there by hand is taken as it is.

Each version is a copy of its own, beside the one that is served; which one engines read changes at the switch
(`copies`). Files that two versions share are linked, not copied. A directory that somebody has put where engines look
is served as it is.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import files
from ..alone import alone
from ..failure import ApplyError
from ..ledger import say
from ..paths import NodePaths
from . import hub
from .copies import NAME_CHARS, RECORD, RESERVE_BYTES, Copies, sync, unwritable

MANIFEST = "huddle-manifest.json"
_STORE_VERSIONS = ".versions"
_ADOPTED = "adopted"
"""The store's name for whatever was made there by hand; it may have no manifest (huddle.publish.paths)."""
_PARTIAL = ".partial"
_CHUNK_BYTES = 16 * 1024**2
_REPORT_S = 10.0
_LOCK = ".lock"


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


def in_store(paths: NodePaths, model: Mapping[str, Any]) -> bool:
    """Whether the shared store holds the model. One that cannot be read does not."""
    try:
        return (paths.model_store / str(model["directory"]) / "config.json").is_file()
    except OSError:
        return False


def is_served(paths: NodePaths, model: Mapping[str, Any]) -> bool:
    """Whether engines find what they need as it is."""
    copies = Copies.of(paths, model["directory"])
    return copies.manual or _fits(copies.record(copies.served), model)


def is_here(paths: NodePaths, model: Mapping[str, Any]) -> bool:
    """Whether the node can serve without the store and the hub."""
    copies = Copies.of(paths, model["directory"])
    return copies.manual or _known(copies, model) is not None


def stage(paths: NodePaths, model: Mapping[str, Any], bundle: Path, token: str, *, keep: bool = False) -> None:
    """Make a copy of the model ready on NVMe: the store's version that counts, beside the served one.

    `keep`: only where no whole copy is served, and then it is served at once: what a boot needs.

    Raises:
        ApplyError: neither the store nor the hub has it, or the disk is too small.
    """
    copies = Copies.of(paths, model["directory"])
    try:
        if keep and not copies.manual and is_served(paths, model):
            return  # without a wait for another staging, which may take long
        copies.models.mkdir(exist_ok=True)
        with alone(copies.models / _LOCK, "staging"):
            if _is_by_hand(copies, model) or (keep and is_served(paths, model)):
                return
            version = _newest(paths, model, bundle, token, copies)
            if not keep:
                copies.note_staged(version)
            if keep or copies.served is None:  # where nothing is served there is nothing to switch from
                copies.serve(version)
            _tidy(copies)
    except OSError as error:  # the store's own are sentences already
        raise unwritable(copies.public, error) from error


def _is_by_hand(copies: Copies, model: Mapping[str, Any]) -> bool:
    """Whether what somebody has put where engines look is to be served.

    Raises:
        ApplyError: it is not what can be served.
    """
    if not copies.manual:
        return False
    if not any(copies.public.iterdir()):
        copies.public.rmdir()
        return False
    theirs = f"{copies.public} was put there by hand"
    if not (copies.public / "config.json").is_file():
        raise ApplyError(f"{theirs} and has no config.json; complete the model there, or move it away")
    away = f"publish it (`huddle models publish {model['name']} --from DIRECTORY`) and move it away"
    if model["digest"]:
        raise ApplyError(f"{theirs}, and the registry wants {model['digest']}: {away}")
    say(f"{theirs} and is served as it is; to take versions again, {away}")
    return True


def _tidy(copies: Copies) -> None:
    """What cannot be removed stops nobody."""
    _remove(copies.tidy)


def _remove(remove: Callable[[], None]) -> None:
    try:
        remove()
    except OSError as error:
        say(f"warning: {error.filename} cannot be removed ({error.strerror}); remove it by hand")


def _fits(record: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    """Whether a copy is whole, and what the registry asks for."""
    if not record or model["digest"] not in (None, record.get("digest")):
        return False
    return "repository" not in record or all(record.get(key) == model[key] for key in ("repository", "revision"))


def _known(copies: Copies, model: Mapping[str, Any]) -> str | None:
    """A copy that lies here and fits."""
    return next((known for known in copies.known() if _fits(copies.record(known), model)), None)


def _newest(paths: NodePaths, model: Mapping[str, Any], bundle: Path, token: str, copies: Copies) -> str:
    """Bring the version that counts, or the one that the registry names. Returns the copy's name."""
    if model["digest"] and (known := _known(copies, model)):
        return known
    # Resolved once: a publication changes the link, and this copy must be of one version.
    origin = (paths.model_store / model["directory"]).resolve()
    former = next((one for one in (copies.served, copies.staged) if one and _fits(copies.record(one), model)), None)
    try:
        origin, published = _version(paths, model, origin)
        if published and copies.record(_name(origin, published, published)).get("digest") == published:
            return _name(origin, published, published)
        sources = tuple(_sources(origin)) if model["digest"] in (None, published) else ()
    except OSError as error:
        if former is None:
            raise _unreadable(origin, error) from error
        say(f"warning: {origin} cannot be read ({error.strerror or error}); the copy that is here serves on")
        return former
    if sources:
        content = published or _listing(sources)
        version = _name(origin, published, content)
        if not copies.record(version):
            _copy(origin, sources, copies, version)
            copies.complete(version, {"digest": published, "files": len(sources)})
        return version
    return former or hub.download(model, bundle, token, copies)


def _version(paths: NodePaths, model: Mapping[str, Any], current: Path) -> tuple[Path, str | None]:
    """Where in the store to copy from, and the published version's digest; None for what was not published.

    Raises:
        ApplyError: the registry demands a version that the store does not have.
    """
    digest, wanted = _digest(current), model["digest"]
    if digest is None and _is_version(current) and current.is_dir():
        # Taken for one that was never published, it would be copied unchecked.
        raise OSError(errno.EIO, "it has no manifest that can be read")
    if wanted in (None, digest):
        return current, digest
    others = (paths.model_store / _STORE_VERSIONS / model["directory"]).glob(f"*/{MANIFEST}")
    whole = (path.parent.resolve() for path in others if not path.parent.name.startswith("."))
    found = next((path for path in whole if _digest(path) == wanted), None)
    if found is None and in_store(paths, model):
        has = f"has digest {digest}" if digest else "was not published and has no digest"
        raise ApplyError(f"the store's {model['name']} {has}, the registry says {wanted}")
    return (found, wanted) if found else (current, None)


def _digest(version: Path) -> str | None:
    digest = files.read_json(version / MANIFEST).get("digest")
    return digest if isinstance(digest, str) else None


def _is_version(origin: Path) -> bool:
    """Whether the store has given it its name for what is in it."""
    return _STORE_VERSIONS in (parent.name for parent in origin.parents) and origin.name != _ADOPTED


def _name(origin: Path, published: str | None, content: str) -> str:
    """A copy's name: the store's for a version that it has published, else by what is in it."""
    if published and _is_version(origin):
        return origin.name
    return content.rpartition(":")[2][:NAME_CHARS]


def _sources(origin: Path) -> Iterator[Source]:
    """The store's files; none when the model is not there. Links are followed: an alias shares its base's files.

    Raises:
        ApplyError: a file that the manifest names is missing.
    """
    if not (origin / "config.json").is_file():
        return
    known = files.read_json(origin / MANIFEST).get("files", {})
    missing = set(known)
    for path in sorted(origin.rglob("*")):
        # Our own marks may come along when somebody fills a store from a node's copy.
        if path.is_file() and path.name != RECORD and path.suffix != _PARTIAL:
            facts, name = path.stat(), path.relative_to(origin).as_posix()
            missing.discard(name)
            yield Source(name, facts.st_size, facts.st_mtime_ns, known.get(name, {}).get("sha256"))
    if missing:
        raise ApplyError(
            f"{origin / min(missing)} is missing, although the manifest names it: publish {origin.name} again"
        )


def _listing(sources: tuple[Source, ...]) -> str:
    """What stands for the content of a model that was not published: its files' names, sizes and times."""
    rows = "\n".join(f"{source.path} {source.size} {source.changed}" for source in sources)
    return f"files:{sha256(rows.encode()).hexdigest()}"


def _unreadable(origin: Path, error: OSError) -> ApplyError:
    return ApplyError(f"{origin} cannot be read ({error.strerror or error}); is it being published?")


def _copy(origin: Path, sources: tuple[Source, ...], copies: Copies, version: str) -> None:
    """Make a version's files complete, all but its record."""
    target, progress = copies.version(version), _Progress(sum(source.size for source in sources))
    others = [copies.version(known) for known in copies.known() if known != version]
    try:
        missing = [source for source in sources if not _is_here(target, source, others, progress)]
        _make_room(copies, version, missing)
        for source in missing:
            _copy_file(origin / source.path, target / source.partial, source, progress)
            (target / source.partial).replace(target / source.path)
        for folder in {target, *((target / source.path).parent for source in sources)}:
            sync(folder)
    except OSError as error:
        raise unwritable(copies.public, error, progress.missing) from error


def _is_here(target: Path, source: Source, others: list[Path], progress: _Progress) -> bool:
    """Whether a file of the copy is there already, or in another copy, which then shares it."""
    place = target / source.path
    found = next((path for path in (place, *(other / source.path for other in others)) if _is(path, source)), None)
    if found is None:
        return False
    if found != place:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        os.link(found, place)
    progress.add(source.size)
    return True


def _is(path: Path, source: Source) -> bool:
    if not path.is_file() or path.stat().st_size != source.size:
        return False
    if source.sha256 is not None:
        return _hash(path) == source.sha256
    return path.stat().st_mtime_ns == source.changed


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


def _make_room(copies: Copies, version: str, missing: list[Source]) -> None:
    """Remove older copies where the new one does not fit beside them; the served one only if nothing else helps.

    Raises:
        ApplyError: not even that helps.
    """
    _remove(lambda: copies.remove(()))  # what a removal that was cut off has left
    target = copies.version(version)
    needed = sum(source.size - min(_size(target / source.partial), source.size) for source in missing)
    existing = next(parent for parent in (target, *target.parents) if parent.is_dir())
    free = shutil.disk_usage(existing).free
    lacking = needed + RESERVE_BYTES - free if needed else 0
    if lacking <= 0:
        return
    to_remove = copies.to_remove_for(lacking, sparing=version)
    if copies.freed(to_remove) < lacking:
        raise ApplyError(
            f"{existing} has {free / 1024**3:.0f} GiB free, the model needs {needed / 1024**3:.0f} GiB "
            f"and {RESERVE_BYTES / 1024**3:.0f} GiB reserve; remove models that are not served"
        )
    if copies.served in to_remove:
        say(
            f"{copies.public} has no room for two versions: the served one is removed first; an engine that restarts "
            "before the new one is complete has to wait for it, and there is none to go back to"
        )
    copies.remove(to_remove)


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
