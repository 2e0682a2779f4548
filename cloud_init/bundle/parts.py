"""Parts of a bundle: the files that seldom change, apart from those that often do. See docs/decisions/0011.

A part is an archive of its own. It travels in pieces that one run command can carry, each named by the SHA-256 of its
bytes; a bundle's manifest says which pieces it needs. A node keeps pieces (cloud_init/huddle_apply/parts.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from pathlib import PurePosixPath

from cloud_init.bundle import archive

PIECE_BYTES = 156_500
"""A run command's script is a quarter larger, and stays below our limit for one."""
_PROGRAM = "apply/huddle_apply"
_ENTRY = frozenset(f"{_PROGRAM}/{name}.py" for name in ("__init__", "failure", "files", "ledger", "parts", "paths"))
"""What puts parts together cannot come with one."""


@verify(UNIQUE)
class Kind(StrEnum):
    """What a part holds. Its name is that of its first piece, and of the resource that brings it."""

    PACKAGE = "package"
    """Our package, as a wheel."""
    INSTALLER = "installer"
    """The program that applies bundles, and the locks of the libraries that it installs."""


@dataclass(frozen=True)
class Piece:
    """One file to bring to every node. `name`: the part's, with a number from the second piece on."""

    name: str
    digest: str
    content: bytes

    @property
    def relative(self) -> PurePosixPath:
        """Where a node keeps it, below its folder of parts."""
        return PurePosixPath(self.name, self.digest)


def kind_of(path: str) -> Kind | None:
    """The part that brings a file of a bundle; None for what comes with the bundle itself."""
    if path.startswith("wheels/"):
        return Kind.PACKAGE
    if path.startswith(("requirements/", f"{_PROGRAM}/")) and path not in _ENTRY:
        return Kind.INSTALLER
    return None


def of_kind(files: Mapping[str, bytes], kind: Kind) -> dict[str, bytes]:
    """The files that a part brings, by path."""
    return {path: content for path, content in files.items() if kind_of(path) is kind}


def pieces(files: Mapping[str, bytes], kind: Kind) -> tuple[Piece, ...]:
    """A part of a bundle with these files. Deterministic: equal files make equal pieces."""
    packed = archive.pack(of_kind(files, kind))
    cuts = [packed[start : start + PIECE_BYTES] for start in range(0, len(packed), PIECE_BYTES)]
    return tuple(
        Piece(f"{kind}-{number}" if number > 1 else kind.value, hashlib.sha256(cut).hexdigest(), cut)
        for number, cut in enumerate(cuts, start=1)
    )
