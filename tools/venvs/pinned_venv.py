"""Environments outside the tree for things too big or too foreign for the project's own: built once, hash-locked.

Safe to run from several processes: the first one builds, the others wait for it.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from infra.engine.cache import cache_root, locked
from tools.setup.environment import say, uv

_STAMP = ".complete"


def ensure(where: Path, lock: Path, finish: Callable[[Path], None] = lambda _: None) -> Path:
    """Build `where` from `lock` unless that was done, and return its `python`.

    `finish` gets the new environment's site-packages. Raises `subprocess.CalledProcessError` when a wheel cannot be
    had; what is half built is not taken for complete.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    python = where / "bin/python"
    with locked(where.parent, say, f"{where.name}.lock"):
        stamp = where / _STAMP
        if stamp.is_file() and stamp.read_text() == digest:
            return python
        shutil.rmtree(where, ignore_errors=True)
        say(f"building {where} from {lock.name}")
        program = installer()
        subprocess.run([program, "venv", "--quiet", "--python", sys.executable, str(where)], check=True)
        # The lock is whole, so nothing is resolved here: what it names is installed, hash-checked, and nothing else.
        pip = [program, "pip", "install", "--quiet", "--compile-bytecode", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "--python", str(python), "-r", str(lock)], check=True)
        finish(next((where / "lib").glob("python3.*/site-packages")))
        stamp.write_text(digest)
    return python


def installer() -> str:
    """The uv on PATH, or our own, which is installed unless it is there."""
    if found := shutil.which("uv"):
        return found
    cache = cache_root()
    with locked(cache, say):
        return str(uv(cache))
