"""Where models lie in a store: whole versions aside, and one link that says which of them counts.

<store>/.versions/<directory>/<version>/…     a version, never changed once it has its name (but for damaged files)
<store>/.versions/<directory>/previous        link to the version before, the last known good one
<store>/<directory>                           link to the version that counts: changing it is the publication
"""

import ctypes
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huddle.errors import InputError
from huddle.publish import manifest

VERSIONS = ".versions"
INCOMING = ".incoming"
PREVIOUS = "previous"
ADOPTED = "adopted"
"""Name of the version that a hand-made directory becomes when a publication takes its place."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


class StoreError(InputError):
    """The store is not as it must be."""


@dataclass(frozen=True)
class StorePaths:
    """Paths of a store, and the atomic steps on them."""

    root: Path

    def public(self, directory: str) -> Path:
        """Where everybody looks for a model."""
        return self.root / directory

    def versions(self, directory: str) -> Path:
        """All versions of a model."""
        return self.root / VERSIONS / directory

    def version(self, directory: str, version: str) -> Path:
        """The directory of one version."""
        return self.versions(directory) / version

    def incoming(self, directory: str) -> Path:
        """A version that is being written; a publication that was cut off goes on here."""
        return self.versions(directory) / INCOMING

    def current(self, directory: str) -> str | None:
        """The name of the version that is served; None where there is none."""
        return _target_name(self.public(directory), self.versions(directory))

    def previous(self, directory: str) -> str | None:
        """The name of the version that was served before; None where there is none."""
        return _target_name(self.versions(directory) / PREVIOUS, self.versions(directory))

    def known(self, directory: str) -> tuple[str, ...]:
        """The names of every whole version, sorted."""
        folder = self.versions(directory)
        if not folder.is_dir():
            return ()
        return tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.is_symlink() and p.name[0] != "."))

    def directories(self) -> Iterator[str]:
        """Every model's directory, such as `huddle-ai/language/hl`: what holds versions is one."""
        base = self.root / VERSIONS
        for folder, _, _ in os.walk(base):
            path = Path(folder)
            if any((child / manifest.FILE).is_file() for child in path.iterdir() if child.is_dir()):
                yield path.relative_to(base).as_posix()

    def accept(self, directory: str, version: str) -> tuple[str, ...]:
        """Give what has come in its name. From here on it is whole.

        Returns the damaged files of a version published before that were replaced.
        """
        target, incoming = self.version(directory, version), self.incoming(directory)
        repaired: tuple[str, ...] = ()
        if target.exists():  # the same content, published before; perhaps the disk has lost some of it since
            repaired = _repair(target, incoming)
            shutil.rmtree(incoming)
        else:
            incoming.rename(target)
        sync_directory(self.versions(directory))
        return repaired

    def switch(self, directory: str, version: str) -> None:
        """Make a version the one that counts; readers see the old one or the new one, whole."""
        public, before = self.public(directory), self.current(directory)
        if before == version:
            return
        if before is not None:
            _link(self.versions(directory) / PREVIOUS, Path(before))
        public.parent.mkdir(parents=True, exist_ok=True)
        up = Path(*[".."] * len(Path(directory).parts[:-1]))
        target = up / VERSIONS / directory / version
        if public.is_dir() and not public.is_symlink():
            self._adopt(directory, target)
        else:
            _link(public, target)
        sync_directory(public.parent)

    def _adopt(self, directory: str, target: Path) -> None:
        """A directory that somebody made by hand changes places with the link and becomes a version of its own."""
        fresh = self.versions(directory) / ADOPTED
        if fresh.is_dir() and not fresh.is_symlink():
            shutil.rmtree(fresh)
        public = self.public(directory)
        beside = public.with_name(f".{public.name}.new")
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        _exchange(beside, public)
        beside.rename(fresh)
        _link(self.versions(directory) / PREVIOUS, Path(ADOPTED))

    def collect_garbage(self, directory: str) -> tuple[str, ...]:
        """Remove the versions that neither count, nor are the last known good one, nor are linked to by another model.

        Returns what was removed.
        """
        current = self.current(directory)
        if current is None:
            return ()
        kept = {current, self.previous(directory), *self._linked_to(directory)}
        removed = [version for version in self.known(directory) if version not in kept]
        for version in removed:
            # Its name goes first: what is half removed must not look whole.
            removing = self.versions(directory) / f".doomed-{version}"
            self.version(directory, version).rename(removing)
        for removing in self.versions(directory).glob(".doomed-*"):
            shutil.rmtree(removing)
        return tuple(removed)

    def remove(self, directory: str) -> None:
        """Take a model away: its name first, then its versions."""
        public = self.public(directory)
        if public.is_symlink():
            public.unlink()
            sync_directory(public.parent)
        shutil.rmtree(self.versions(directory), ignore_errors=True)

    def _linked_to(self, directory: str) -> set[str]:
        """Versions of a model that aliases of it link to."""
        base, found = self.versions(directory).resolve(), set()
        for other in self.directories():
            if other == directory:
                continue
            for version in self.known(other):
                for path in self.version(other, version).rglob("*"):
                    resolved = path.resolve() if path.is_symlink() else None
                    if resolved is not None and resolved.is_relative_to(base):
                        found.add(resolved.relative_to(base).parts[0])
        return found


def sync_directory(path: Path) -> None:
    """Make names in a directory last through a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _repair(version: Path, fresh: Path) -> tuple[str, ...]:
    """Put the fresh copy of each file in the place of a damaged one; what is whole stays untouched.

    File by file, instead of two directories changing places: each step takes one damage away and adds none, so a cut in
    the middle leaves something that the next publication goes on repairing; what aliases link to is there all the time;
    and it works on a network share, which cannot exchange two names.
    """
    known = manifest.read(fresh)
    # The manifest last: a damaged one keeps readers away until all else is whole.
    facts = {**known.files, manifest.FILE: manifest.hash_file(fresh / manifest.FILE)}
    damaged = tuple(path for path, one in facts.items() if not _is_whole(version / path, one, known.links.get(path)))
    for path in damaged:
        target = version / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).replace(target)
            sync_directory(target.parent)
        except OSError as error:
            raise StoreError(
                f"{target}: is damaged and cannot be replaced ({error.strerror or error}); move {version} away by hand "
                "and publish again"
            ) from error
    return damaged


def _is_whole(path: Path, facts: manifest.FileFacts, link: str | None) -> bool:
    """Whether a file of a version is what its manifest says. What a link leads to is its own version's business."""
    try:
        if link is not None:
            return str(path.readlink()) == link
        return not path.is_symlink() and manifest.hash_file(path) == facts
    except OSError:  # missing, or the disk cannot read it any more
        return False


def _link(path: Path, target: Path) -> None:
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _target_name(link: Path, versions: Path) -> str | None:
    """The name of the version that a link leads to; None when it leads nowhere or elsewhere."""
    if not link.is_symlink():
        return None
    target = link.resolve()
    return target.name if target.parent == versions.resolve() and target.is_dir() else None


def _exchange(one: Path, other: Path) -> None:
    """Let two names change places in one step (renameat2; Linux 3.15, ext4 and XFS)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise StoreError(f"{other} cannot be replaced by a link ({os.strerror(number)}); move it away by hand")
