"""Small files whole: who reads one sees the old one or the new one, and waits for no writer."""

import os
import stat
from pathlib import Path


class NotASmallFileError(OSError):
    """It is no regular file, or it is too large. `strerror` says which."""


def read(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file. A FIFO or a device is refused at once: reading it could wait for ever.

    Raises:
        NotASmallFileError: not a regular file, or more than `most_bytes`.
        OSError: as for any file.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotASmallFileError(0, "not a regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise NotASmallFileError(0, f"over {most_bytes} bytes")
    return content


def write(path: Path, content: bytes, *, mode: int | None = None, lasting: bool = False) -> None:
    """Put `content` in the place of a file. `mode`: its permissions; `lasting`: it survives a power cut.

    Raises:
        OSError: as for any file; the old one is untouched then.
    """
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    if mode is not None:
        fresh.chmod(mode)
    fresh.replace(path)
