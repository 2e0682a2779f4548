"""Day 2: everything that may change on a running node, as one archive with a digest. See docs/decisions/0004.

One bundle serves all nodes of a stack: what nodes have in common lies at its top, what is a node's own lies below
`nodes/<host name>/`. The digest is the SHA-256 of the archive and names it everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cloud_init.bundle import archive, contents
from plan.model import FleetPlan

DIGEST_CHARS_IN_NAME = 12
MANIFEST = "manifest.json"
FORMAT = 1
"""Of the archive's layout; a node refuses a format that its program does not know."""


@dataclass(frozen=True)
class Bundle:
    """An archive (.tar.bz2), its digest, and the files in it by path."""

    digest: str
    name: str
    archive: bytes
    files: Mapping[str, bytes]

    def largest(self, count: int) -> list[tuple[str, int]]:
        """The largest files, with their sizes in bytes."""
        return sorted(((path, len(content)) for path, content in self.files.items()), key=lambda row: -row[1])[:count]


def build(plan: FleetPlan) -> Bundle:
    """Build the bundle of a stack. Deterministic: the same plan and sources make the same bytes."""
    return seal(contents.collect(plan))


def seal(files: Mapping[str, bytes]) -> Bundle:
    """Pack files, with a manifest of their digests, as a bundle."""
    files = {path: content for path, content in files.items() if path != MANIFEST}
    files[MANIFEST] = _manifest(files)
    packed = archive.pack(files, executables=contents.executables(files))
    digest = hashlib.sha256(packed).hexdigest()
    return Bundle(
        digest=digest,
        name=f"huddle-{digest[:DIGEST_CHARS_IN_NAME]}",
        archive=packed,
        files=MappingProxyType(files),
    )


def _manifest(files: Mapping[str, bytes]) -> bytes:
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in sorted(files.items())}
    return (json.dumps({"format": FORMAT, "files": digests}, indent=1, sort_keys=True) + "\n").encode()
