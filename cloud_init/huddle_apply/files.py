"""Small files, written so that a reader sees the old content or the new one and a power cut loses neither."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """Write a file atomically. False when it had that content and mode already."""
    if (
        path.is_file()
        and not path.is_symlink()
        and path.read_bytes() == content
        and path.stat().st_mode & 0o7777 == mode
    ):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    fresh.replace(path)
    return True


def write_json(path: Path, value: Any, mode: int = 0o644) -> bool:
    """Write a value as indented JSON in UTF-8, atomically."""
    return write(path, (json.dumps(value, indent=1) + "\n").encode(), mode)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; an absent or broken file counts as an empty one."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def link(path: Path, target: Path) -> None:
    """Point a symbolic link at a target atomically, whatever was there."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)
