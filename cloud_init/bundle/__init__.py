"""Day 2: everything that may change on a running node, as one archive with a digest."""

from cloud_init.bundle.parts import Kind, Piece
from cloud_init.bundle.seal import DIGEST_CHARS_IN_NAME, FORMAT, MANIFEST, Bundle, build, seal

__all__ = ["DIGEST_CHARS_IN_NAME", "FORMAT", "MANIFEST", "Bundle", "Kind", "Piece", "build", "seal"]
