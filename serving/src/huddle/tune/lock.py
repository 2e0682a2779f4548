"""One writer at a time: two sweeps must not overwrite what each other has found."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huddle.errors import InputError

_ASK_S = 0.1


@contextmanager
def results(file: Path) -> Iterator[None]:
    """For as long as a sweep takes. (The file itself is replaced at every write, so it is another one that is locked.)

    Raises:
        InputError: another sweep has it.
        OSError: as for any file.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file.with_name(f".{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    busy = f"another `huddle tune` is writing {file}; wait for its end, or name another file with --results"
    with _locked(descriptor, busy, 0):
        yield


@contextmanager
def registry(file: Path, patience_s: float = 10) -> Iterator[None]:
    """For a reading and a writing of `models.yaml`, which are soon over.

    Raises:
        InputError: another sweep has its folder, and keeps it.
        OSError: as for any file.
    """
    descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with _locked(descriptor, f"another `huddle tune` is writing in {file.parent}; try again", patience_s):
        yield


@contextmanager
def _locked(descriptor: int, busy: str, patience_s: float) -> Iterator[None]:
    end = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise InputError(busy) from None
            time.sleep(_ASK_S)
        yield
    finally:
        os.close(descriptor)
