"""What has passed on this tree, in the cache: one file for each lab and each digest of its inputs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from huddle import whole_file
from infra.engine.cache import cache_key, cache_root
from infra.engine.versions import ROOT
from tools.labs.table import Lab


class Passed:
    """The scenarios that have passed, by pytest's names, in a file that every outcome is written to at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = set(path.read_text(encoding="utf-8").splitlines()) if path.is_file() else set()

    def note(self, name: str, *, passed: bool) -> None:
        """Keep an outcome: what fails now counts as not passed, whatever it did before."""
        (self.names.add if passed else self.names.discard)(name)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.write(self.path, "".join(f"{each}\n" for each in sorted(self.names)).encode())


def file_of(lab: Lab) -> Path:
    """Where a lab's progress on this tree is kept. What is left of other trees is removed."""
    folder = cache_root() / "labs" / lab.name
    path = folder / inputs_digest(lab)
    for other in folder.glob("*"):
        if other != path:
            other.unlink(missing_ok=True)
    return path


def inputs_digest(lab: Lab, root: Path = ROOT) -> str:
    """Of the names and contents of all files that the lab reads, also of those that are not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    read = sorted({name for name in found if name and lab.reads(name) and (root / name).is_file()})
    return cache_key(part for name in read for part in (name, (root / name).read_bytes()))
