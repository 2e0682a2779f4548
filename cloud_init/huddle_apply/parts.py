"""Parts: what of a bundle seldom changes is delivered once and kept under its digest. With them a bundle is whole.

A bundle's manifest names the pieces of each part and the files that they give. A bundle that is whole needs no part any
more: it can be gone back to whatever became of them. This module, and what it imports, are in no part themselves.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from . import files
from .failure import ApplyError
from .ledger import Ledger, State
from .paths import NodePaths

KEPT = 3
"""Of each piece, as of bundles' archives: those delivered last. What delivered them does not do so again by itself."""
_DIGEST_CHARS = 64


def complete(bundle: Path, host: str) -> bool:
    """Make an unpacked bundle whole. If that cannot be, say so in the status, and on stderr as the last line."""
    os.umask(0o022)  # the services read what is unpacked here
    paths = NodePaths.from_environment()
    try:
        unpack(paths, bundle)
    except (ApplyError, OSError) as error:
        serving = paths.serving_digest()
        sentence = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)
        kept = f"; bundle {serving[:12]} serves as before" if serving not in (None, bundle.name) else ""
        Ledger(paths, host, bundle.name).end(State.FAILED, serving, sentence + kept, 1, phase="parts")
        return False
    return True


def unpack(paths: NodePaths, bundle: Path) -> None:
    """Give a bundle the files of its parts, where they are not here as its manifest wants them.

    Raises:
        ApplyError: a piece was never delivered to this node, or is damaged.
        OSError: a file cannot be written.
    """
    manifest = _manifest(bundle)
    lacking = [
        part
        for part in manifest.get("parts", {}).values()
        if any(_digest(bundle / path) != manifest["files"][path] for path in part["files"])
    ]
    contents, faults = [], []
    for part in lacking:
        pieces = []
        for name, digest in part["pieces"]:
            try:
                pieces.append(_piece(paths.parts / name / digest, name))
            except ApplyError as fault:
                faults.append(str(fault))
        contents.append(b"".join(pieces))
    if faults:
        raise ApplyError(f"{'; '.join(faults)}; deliver it again (docs/runbooks/nodes.md, 'A part is lacking')")
    for content in contents:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:bz2") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    files.write(bundle / member.name, file.read(), member.mode)


def tidy(paths: NodePaths, bundles: Sequence[Path]) -> None:
    """Remove pieces that no bundle of these needs and that are not among those delivered last."""
    needed = {piece for bundle in bundles for piece in _pieces(bundle)}
    for folder in paths.parts.iterdir() if paths.parts.is_dir() else ():
        delivered = [path for path in folder.iterdir() if len(path.name) == _DIGEST_CHARS]  # no half-written one
        delivered.sort(key=lambda path: path.stat().st_mtime)
        for path in delivered[:-KEPT]:
            if path.name not in needed:
                path.unlink(missing_ok=True)


def _manifest(bundle: Path) -> Mapping[str, Any]:
    try:
        return dict(json.loads((bundle / "manifest.json").read_bytes()))
    except (OSError, ValueError) as error:
        raise ApplyError(f"{bundle}/manifest.json cannot be read ({error}); deliver the bundle again") from error


def _pieces(bundle: Path) -> list[str]:
    parts = files.read_json(bundle / "manifest.json").get("parts", {})
    return [digest for part in parts.values() for _, digest in part["pieces"]]


def _piece(path: Path, name: str) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ApplyError(f"part {name} is not on this node: there is no {path}") from None
    actual = sha256(content).hexdigest()
    if actual != path.name:
        raise ApplyError(f"part {name} in {path} has digest {actual[:12]}: truncated or altered")
    return content


def _digest(path: Path) -> str | None:
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
