"""Day 2: everything that may change on a running node, as one archive with a digest. See docs/decisions/0004.

One bundle serves all nodes of a stack: what nodes have in common lies at its top, what is a node's own lies below
`nodes/<host name>/`. What seldom changes comes in parts, once for many bundles; the manifest in the archive names them.
The digest is the SHA-256 of the archive, names it everywhere and so covers the parts as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cloud_init.bundle import archive, contents, parts
from cloud_init.bundle.parts import Kind, Piece
from plan.model import FleetPlan

DIGEST_CHARS_IN_NAME = 12
MANIFEST = "manifest.json"
FORMAT = 1
"""Of the archive's layout; a node refuses a format that its program does not know."""


@dataclass(frozen=True)
class Bundle:
    """An archive (.tar.bz2), its digest, the files by path once parts are with them, and the parts' pieces."""

    digest: str
    name: str
    archive: bytes
    files: Mapping[str, bytes]
    pieces: tuple[Piece, ...] = ()

    def largest(self, count: int) -> list[tuple[str, int]]:
        """The largest files in the archive, with their sizes in bytes."""
        own = ((path, len(content)) for path, content in self.files.items() if parts.kind_of(path) is None)
        return sorted(own, key=lambda row: -row[1])[:count]


def build(plan: FleetPlan) -> Bundle:
    """Build the bundle of a stack. Deterministic: the same plan and sources make the same bytes."""
    return seal(contents.collect(plan))


def seal(files: Mapping[str, bytes]) -> Bundle:
    """Pack files, with a manifest of their digests, as a bundle and its parts."""
    files = {path: content for path, content in files.items() if path != MANIFEST}
    brought = {kind: parts.pieces(files, kind) for kind in Kind if parts.of_kind(files, kind)}
    files[MANIFEST] = _manifest(files, brought)
    own = {path: content for path, content in files.items() if parts.kind_of(path) is None}
    packed = archive.pack(own, executables=contents.executables(own))
    digest = hashlib.sha256(packed).hexdigest()
    return Bundle(
        digest=digest,
        name=f"huddle-{digest[:DIGEST_CHARS_IN_NAME]}",
        archive=packed,
        files=MappingProxyType(files),
        pieces=tuple(piece for pieces in brought.values() for piece in pieces),
    )


def _manifest(files: Mapping[str, bytes], brought: Mapping[Kind, tuple[Piece, ...]]) -> bytes:
    manifest = {
        "format": FORMAT,
        "files": {path: hashlib.sha256(content).hexdigest() for path, content in files.items()},
        "parts": {
            kind: {
                "pieces": [[piece.name, piece.digest] for piece in pieces],
                "files": sorted(parts.of_kind(files, kind)),
            }
            for kind, pieces in brought.items()
        },
    }
    return (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()
