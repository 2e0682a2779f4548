"""Write a small file in one step: who reads it sees the old one or the new one, whole."""

import os
from pathlib import Path


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
