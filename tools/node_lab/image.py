"""The guest's image: a Debian with what an Azure image brings, built once for all runs and kept outside of the tree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cloud_init.huddle_apply.installed.libraries import DIGEST_CHARS
from infra.engine.cache import cache_key, filled
from tools.node_lab.wheels import Wheels
from tools.node_lab.wheels import ensure as ensure_wheels
from tools.setup.environment import say

HERE = Path(__file__).parent
SUITE = "bookworm"
SIZE = "3G"
"""Of the root disk, sparse: some 1.2 GiB are used."""
OVERLAY = HERE / "overlay"
"""Files of the guest that Azure's image and surroundings would bring."""
_PACKAGES = HERE / "packages.txt"
_BUILD_BASE = HERE / "build-base.sh"
_BUILD = HERE / "build-image.sh"


@dataclass(frozen=True)
class Image:
    """Where kernel, initial RAM disk and root file system (raw ext4, read-only: guests write to overlays) lie."""

    folder: Path

    @property
    def kernel(self) -> Path:
        """The kernel that QEMU boots."""
        return self.folder / "kernel"

    @property
    def initrd(self) -> Path:
        """Its initial RAM disk."""
        return self.folder / "initrd"

    @property
    def root(self) -> Path:
        """The root file system, a raw disk image."""
        return self.folder / "root.raw"


def ensure(libraries: Wheels) -> Image:
    """The image of this recipe with these libraries, built as root unless it is there (new packages take minutes).

    Raises:
        subprocess.CalledProcessError: the build failed; it said why on stderr.
    """
    base_recipe: list[str | bytes] = [SUITE, *_recipe(_BUILD_BASE, _PACKAGES)]
    overlay = sorted(path for path in OVERLAY.rglob("*") if path.is_file())
    recipe = [*base_recipe, SIZE, libraries.lock, *_recipe(_BUILD, *overlay)]
    folder = _made(
        f"node-lab-{cache_key(recipe)}",
        "making the lab's guest",
        lambda folder: [
            _BUILD,
            folder,
            _base(base_recipe) / "root.tar",
            SIZE,
            OVERLAY,
            *_libraries(libraries, folder),
        ],
    )
    return Image(folder)


def _base(recipe: Sequence[str | bytes]) -> Path:
    """The packed root file system with its packages: needed only when an image is made."""
    return _made(
        f"node-lab-base-{cache_key(recipe)}",
        "installing the Debian packages of the lab's guest (minutes, once)",
        lambda folder: [_BUILD_BASE, folder, SUITE, _PACKAGES],
    )


def _libraries(libraries: Wheels, folder: Path) -> Sequence[object]:
    """Where the wheels and their lock are, and where a node looks for an environment of that lock."""
    lock = folder / "engine.lock"
    lock.write_bytes(libraries.lock)
    digest = sha256(libraries.lock).hexdigest()[:DIGEST_CHARS]
    return libraries.folder, lock, f"/opt/huddle/venvs/engine-{digest}"


def _recipe(*paths: Path) -> Iterator[bytes]:
    for path in paths:
        yield path.relative_to(HERE).as_posix().encode()
        yield path.read_bytes()


def _made(name: str, what: str, command: Callable[[Path], Sequence[object]]) -> Path:
    """A folder of the cache, filled by a command of root's unless it is there."""

    def fill(working: Path) -> None:
        say(what)
        as_root = [] if os.geteuid() == 0 else ["sudo", "-n"]
        subprocess.run([*as_root, *map(str, command(working))], check=True, stdout=sys.stderr)

    return filled(name, say, fill)


if __name__ == "__main__":
    print(ensure(ensure_wheels()).folder)
