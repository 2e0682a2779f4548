"""Environments outside the tree for things too big or too foreign for the project's own: built once, hash-locked.

Safe to run from several processes: the first one builds, the others wait for it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_STAMP = ".complete"


def cache_home() -> Path:
    """Where such environments live (`$XDG_CACHE_HOME/h100-inference`)."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "h100-inference"


def ensure(where: Path, lock: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """Build `where` from `lock` unless that was done, and return its `python`.

    `finish` gets the new environment's site-packages. Raises `subprocess.CalledProcessError` when a wheel cannot be
    had; what is half built is not taken for complete.
    """
    where.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    python = where / "bin/python"
    with where.with_name(where.name + ".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        stamp = where / _STAMP
        if stamp.is_file() and stamp.read_text() == digest:
            return python
        shutil.rmtree(where, ignore_errors=True)
        print(f"building {where} from {lock.name} ...", file=sys.stderr)
        _uv("venv", "--quiet", "--python", "3.11", str(where))
        # The lock is whole, so nothing is resolved here: what it names is installed, hash-checked, and nothing else.
        _uv("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(python), "-r", str(lock))
        finish(next((where / "lib").glob("python3.*/site-packages")))
        stamp.write_text(digest)
    return python


def _uv(*args: str) -> None:
    subprocess.run(["uv", *args], check=True)
