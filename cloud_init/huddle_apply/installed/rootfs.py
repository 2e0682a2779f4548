"""Bringing the files below / in line with a bundle. What an earlier bundle put there and this one lacks is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from .. import files

Desired = Mapping[str, tuple[bytes, int]]


@dataclass(frozen=True)
class Changes:
    """What was done, by path relative to the root."""

    written: tuple[str, ...]
    removed: tuple[str, ...]

    def touches(self, prefix: str) -> bool:
        """Whether anything below a folder changed."""
        return any(path.startswith(prefix) for path in (*self.written, *self.removed))


def sync(root: Path, desired: Desired, installed: Mapping[str, str]) -> Changes:
    """Write what differs. `installed`: paths and digests of the last time; only files still as we left them go."""
    written = [path for path, (content, mode) in desired.items() if files.write(root / path, content, mode)]
    removed = []
    for path, digest in installed.items():
        target = root / path
        if path not in desired and target.is_file() and sha256(target.read_bytes()).hexdigest() == digest:
            target.unlink()
            removed.append(path)
    return Changes(tuple(written), tuple(removed))


def digests(desired: Desired) -> dict[str, str]:
    """What to remember as installed."""
    return {path: sha256(content).hexdigest() for path, (content, _) in desired.items()}
