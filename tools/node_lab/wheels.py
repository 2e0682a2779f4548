"""The node's libraries in the lab: the wrapper's real ones, and stand-ins named `vllm`, `ray` and `jupyterlab`.

The bundle's engine lock asks for 4 GB of CUDA libraries, which an emulated machine cannot use. The lab's lock has the
serving runtime's own libraries instead, by the same hashes, so that the node installs in the same way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cloud_init.bundle.wheel import pack
from huddle import versions
from infra.engine.cache import cache_key, filled
from infra.engine.versions import ROOT
from tools.setup.environment import say

PYTHON = "3.11"
"""Of the guest's Debian; a node in Azure has what versions.yaml says."""
INSTALLER = "uv"
JUPYTER = "jupyterlab"
_STUBS = Path(__file__).parent / "stubs"
_LIBRARIES = ROOT / "serving" / "requirements.lock"
_INSTALLER = ROOT / "serving" / "installer.lock"
_PLATFORMS = ("manylinux_2_36_x86_64", "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


@dataclass(frozen=True)
class Wheels:
    """A folder of wheels, and the locks that name those of the engine's environment and of JupyterLab's."""

    folder: Path
    lock: bytes
    jupyter_lock: bytes


def ensure() -> Wheels:
    """Download and build the wheels unless they are there.

    Raises:
        subprocess.CalledProcessError: a wheel cannot be had.
    """
    stubs = dict(_stub_wheels())
    recipe: list[str | bytes] = [PYTHON, _LIBRARIES.read_bytes(), _INSTALLER.read_bytes(), *stubs.values()]

    def fill(working: Path) -> None:
        _download(working)
        for name, content in stubs.items():
            (working / name).write_bytes(content)

    folder = filled(f"node-lab-wheels-{cache_key(recipe)}", say, fill)
    lines = dict(_lock_lines(folder))
    jupyter = lines.pop(JUPYTER)
    del lines[INSTALLER]
    return Wheels(folder, b"".join(lines.values()), jupyter)


def _download(folder: Path) -> None:
    say("downloading the lab's wheels")
    # pip of the Python under .venv, which has none of its own: uv cannot fill a folder.
    pip = [sys.base_exec_prefix + "/bin/python3", "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    only = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--python-version", PYTHON]
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    for lock in (_LIBRARIES, _INSTALLER):
        command = [*pip, *only, *platforms, "--dest", str(folder), "--requirement", str(lock)]
        subprocess.run(command, check=True, stdout=sys.stderr)


def _stub_wheels() -> Iterator[tuple[str, bytes]]:
    pins = versions.load().engine
    yield _wheel("vllm", pins.vllm, {"vllm": "vllm.engine:main"})
    yield _wheel("ray", pins.ray, {"ray": "ray.cluster:main"})
    yield _wheel(JUPYTER, "0", {"jupyter-lab": "jupyterlab.server:main"})


def _wheel(name: str, version: str, programs: Mapping[str, str]) -> tuple[str, bytes]:
    """A wheel of the stub's sources."""
    package = _STUBS / name
    files = {f"{name}/{path.relative_to(package).as_posix()}": path.read_bytes() for path in package.rglob("*.py")}
    made = pack(name, version, files, programs)
    return made.name, made.content


def _lock_lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    """By library, one hash each, of the wheel that is there, as the product's locks have it."""
    for path in sorted(folder.glob("*.whl")):
        name, version, *_ = path.name.split("-")
        yield name, f"{name}=={version} --hash=sha256:{sha256(path.read_bytes()).hexdigest()}\n".encode()


if __name__ == "__main__":
    print(ensure().folder)
