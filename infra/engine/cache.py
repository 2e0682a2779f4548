"""The cache folder outside of the tree: where it is, its keys, its lock, atomic installs into it."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Say = Callable[[str], None]


def cache_root(environ: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CACHE_HOME/h100-inference`, else `~/.cache/h100-inference`, else one below the temporary folder."""
    if environ.get("XDG_CACHE_HOME"):
        base = Path(environ["XDG_CACHE_HOME"])
    elif environ.get("HOME"):
        base = Path(environ["HOME"]) / ".cache"
    else:
        base = Path(tempfile.gettempdir()) / f"cache-{os.getuid()}"
    return base / "h100-inference"


def cache_key(parts: Iterable[str | bytes]) -> str:
    """Twelve hex digits that change when any part does; ("ab", "c") differs from ("a", "bc")."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:12]


@contextmanager
def locked(root: Path, say: Say, name: str = "lock") -> Iterator[None]:
    """Hold a lock of the cache: of two makes at once the second waits and says so. Freed when the process dies."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / name).open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another command is preparing what both need; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def fresh_directory(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes *target* when the block ends well, and vanishes when it does not."""
    target.parent.mkdir(parents=True, exist_ok=True)
    working = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield working
        working.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        working.rename(target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def filled(name: str, say: Say, fill: Callable[[Path], object]) -> Path:
    """A folder of the cache, filled by `fill` unless it is there."""
    folder = cache_root() / name
    with locked(folder.parent, say, f"{name}.lock"):
        if not folder.is_dir():
            with fresh_directory(folder) as working:
                fill(working)
    return folder
