"""One at a time: a boot and a run command may meet."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .ledger import say


@contextmanager
def alone(lock: Path, what: str) -> Iterator[None]:
    """Hold a lock: a second `what` says that it waits, and waits. Freed when the process dies.

    Only root can open the file: others could hold the lock for ever.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another {what} to end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
