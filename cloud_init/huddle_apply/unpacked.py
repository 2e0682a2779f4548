"""A bundle as it lies unpacked on the node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from .failure import ApplyError

FORMAT = 1


@dataclass(frozen=True)
class Unpacked:
    """One bundle's directory and what it says about this node."""

    digest: str
    path: Path
    node: dict[str, Any]
    model: dict[str, Any]

    @classmethod
    def open(cls, bundles: Path, digest: str, host: str) -> Unpacked:
        """Read a bundle.

        Raises:
            ApplyError: it is not there, is damaged, has another format, or was not made for this node.
        """
        path = bundles / digest
        manifest = _read(path / "manifest.json")
        if manifest.get("format") != FORMAT:
            raise ApplyError(f"bundle {digest[:12]} has format {manifest.get('format')!r}, this program knows {FORMAT}")
        _verify(path, digest, manifest["files"])
        own = path / "nodes" / host
        if not own.is_dir():
            known = ", ".join(sorted(entry.name for entry in (path / "nodes").iterdir()))
            raise ApplyError(f"bundle {digest[:12]} is not for {host}; it is for {known}")
        return cls(digest, path, _read(own / "node.json"), _read(own / "model.json"))

    def rootfs(self) -> Iterator[tuple[str, bytes, int]]:
        """Files that belong below /: relative path, content, mode."""
        base = self.path / "rootfs"
        for path in sorted(base.rglob("*")):
            if path.is_file():
                yield (
                    path.relative_to(base).as_posix(),
                    path.read_bytes(),
                    0o755 if path.stat().st_mode & 0o100 else 0o644,
                )

    def deadline_s(self, phase: str) -> float:
        """How long a phase may take."""
        return float(self.node["deadlines_s"][phase])


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ApplyError(f"{path} cannot be read ({error}); deliver the bundle again") from error
    if not isinstance(value, dict):
        raise ApplyError(f"{path} is not a JSON object; deliver the bundle again")
    return value


def _verify(path: Path, digest: str, files: dict[str, str]) -> None:
    for name, expected in files.items():
        try:
            actual = sha256((path / name).read_bytes()).hexdigest()
        except OSError:
            actual = "nothing"
        if actual != expected:
            raise ApplyError(f"{name} of bundle {digest[:12]} is damaged; remove {path} and deliver the bundle again")
