"""Where a model's copies lie on the NVMe: whole versions aside, as in the store, and links that say which one counts.

<workspace>/models/.versions/<directory>/<version>/…   a copy; whole once it holds its record
<workspace>/models/.versions/<directory>/staged        link to the one that staging has made ready
<workspace>/models/.versions/<directory>/previous      link to the one that was served before
<workspace>/models/.versions/<directory>/good          link to the one that answered last
<workspace>/models/<directory>                         link to the one that is served: what the engine reads
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..failure import ApplyError
from ..paths import NodePaths

RECORD = ".staged.json"
NAME_CHARS = 16
"""Of a digest, in the name of a copy that the store has given none."""
RESERVE_BYTES = 4 * 1024**3
"""Stay free on the local disk, for logs and caches."""
_VERSIONS = ".versions"
_STAGED = "staged"
_PREVIOUS = "previous"
_GOOD = "good"
_REMOVING = ".doomed-"


@dataclass(frozen=True)
class Copies:
    """The copies of one model. `directory`: its place in every store, such as `huddle-ai/language/hl`."""

    models: Path
    directory: str

    @classmethod
    def of(cls, paths: NodePaths, directory: str) -> Copies:
        """The copies of one model on a node, below its workspace."""
        return cls(paths.workspace / "models", directory)

    @property
    def public(self) -> Path:
        """Where engines look for the model."""
        return self.models / self.directory

    @property
    def folder(self) -> Path:
        """The directory that holds one directory for each version."""
        return self.models / _VERSIONS / self.directory

    def version(self, name: str) -> Path:
        """The directory of one version, whether it exists or not."""
        return self.folder / name

    @property
    def served(self) -> str | None:
        """The version that the engine reads."""
        return self._target(self.public)

    @property
    def staged(self) -> str | None:
        """The version that staging has made ready last."""
        return self._target(self.folder / _STAGED)

    @property
    def previous(self) -> str | None:
        """The version that was served before."""
        return self._target(self.folder / _PREVIOUS)

    @property
    def good(self) -> str | None:
        """The version that answered last."""
        return self._target(self.folder / _GOOD)

    @property
    def manual(self) -> bool:
        """Whether somebody has put a directory where the link belongs. It is theirs: never touched."""
        return self.public.is_dir() and not self.public.is_symlink()

    def known(self) -> list[str]:
        """Every version here, whole or not."""
        if not self.folder.is_dir():
            return []
        return sorted(p.name for p in self.folder.iterdir() if p.is_dir() and not p.is_symlink() and p.name[0] != ".")

    def record(self, version: str | None) -> dict[str, Any]:
        """What is known of a whole copy; empty for one that is not whole."""
        return files.read_json(self.version(version) / RECORD) if version else {}

    def complete(self, version: str, record: dict[str, Any]) -> None:
        """A copy is whole from here on."""
        files.write_json(self.version(version) / RECORD, record)

    def note_staged(self, version: str) -> None:
        """Name the version that the next switch is to serve."""
        if self.staged != version:
            files.link(self.folder / _STAGED, Path(version))

    def note_good(self) -> None:
        """The version that is served has answered."""
        if self.served is not None and self.served != self.good:
            files.link(self.folder / _GOOD, Path(self.served))

    def serve(self, version: str) -> None:
        """Let engines that start from now on read a version."""
        before = self.served
        if before == version:
            return
        if before is not None:
            files.link(self.folder / _PREVIOUS, Path(before))
        self.public.parent.mkdir(parents=True, exist_ok=True)
        up = Path(*[".."] * len(Path(self.directory).parts[:-1]))
        files.link(self.public, up / _VERSIONS / self.directory / version)

    def tidy(self) -> None:
        """Remove what is neither served, nor was before, nor is about to be, nor answered last."""
        kept = {self.served, self.staged, self.previous, self.good}
        self.remove(version for version in self.known() if version not in kept)

    def remove(self, versions: Iterable[str]) -> None:
        """Remove versions: their names first, so that what is half removed does not look whole."""
        for version in versions:
            removing = self.folder / f"{_REMOVING}{version}"
            if removing.exists():  # left by a removal that did not end
                shutil.rmtree(removing)
            self.version(version).rename(removing)
        for removing in self.folder.glob(f"{_REMOVING}*"):
            shutil.rmtree(removing)

    def to_remove_for(self, needed: int, sparing: str) -> list[str]:
        """The versions to remove for so many bytes, the best last; all there are where that is not enough."""
        best_first = [self.good, self.served, self.staged, self.previous]
        order = [version for version in self.known() if version not in best_first]
        order += [version for version in reversed(dict.fromkeys(best_first)) if version is not None]
        chosen: list[str] = []
        for version in order:
            if self.freed(chosen) >= needed:
                break
            if version != sparing:
                chosen.append(version)
        return chosen

    def freed(self, versions: Iterable[str]) -> int:
        """Bytes that come free when these go together: a file shared with one that stays does not."""
        facts = [path.lstat() for version in versions for path in self.version(version).rglob("*") if not path.is_dir()]
        gone = Counter(fact.st_ino for fact in facts)
        return sum({fact.st_ino: fact.st_size for fact in facts if gone[fact.st_ino] == fact.st_nlink}.values())

    def _target(self, link: Path) -> str | None:
        """The version that a link leads to; None when it leads nowhere or elsewhere."""
        if not link.is_symlink():
            return None
        try:
            target = link.resolve()
        except RuntimeError:  # a loop of links
            return None
        return target.name if target.parent == self.folder.resolve() and target.is_dir() else None


def sync(folder: Path) -> None:
    """Names that were made in a directory survive a power cut from here on."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(target: Path, error: OSError, missing: int | None = None) -> ApplyError:
    """The local disk's failure, in words of its own: nothing is wrong with the store."""
    reason = f"{target} cannot be written ({error.strerror or error})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        left = "" if missing is None else f"{missing / 1024**3:.1f} GiB of the model are still to be copied; "
        return ApplyError(
            f"{reason}: {left}remove models that are not served or other files from this disk, then apply again"
        )
    return ApplyError(
        f"{reason}; see dmesg and the directory's owner; if the disk is broken, deallocate the VM and start it"
    )
