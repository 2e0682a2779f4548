"""The `huddle` wheel for a node, built in pure Python so that it is the same bytes everywhere (PEP 427).

It holds what a node runs, not the client's commands: the bundle that carries it must stay small. For the same reason
entries are stored, not compressed (bzip2 does better on the whole bundle), and RECORD gives no digests (they are
optional, do not compress, and the bundle's own digest covers every byte).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field

from cloud_init.bundle.serving_code import SERVING, closure
from huddle import data_file, versions

NODE_PROGRAMS = (
    "huddle.cli",
    "huddle.launch.cli",
    "huddle.wrapper.cli",
    "huddle.models.cli",
    "huddle.probe.cli",
    "huddle.status.cli",
)
"""What a node runs. `huddle` finds its commands by what is installed, so the others are simply not there."""
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16


@dataclass(frozen=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    content: bytes


class _Project(BaseModel):
    name: str
    version: str
    description: str
    requires_python: str = Field(alias="requires-python")
    scripts: dict[str, str]


class _Pyproject(BaseModel):
    project: _Project


def build(serving: Path = SERVING) -> Wheel:
    """Build the wheel of `serving/src/huddle` with the metadata of `serving/pyproject.toml`.

    Raises:
        InputError: the metadata is wrong.
    """
    project = data_file.load(serving / "pyproject.toml", _Pyproject).project
    files = dict(_package_files(serving / "src", project.name))
    return pack(project.name, project.version, files, project.scripts, _more_metadata(project, serving))


def pack(
    name: str, version: str, files: Mapping[str, bytes], scripts: Mapping[str, str], more_metadata: Iterable[str] = ()
) -> Wheel:
    """A pure-Python wheel of files by their places in it; the same bytes each time. `scripts` are its programs."""
    stem = f"{name}-{version}"
    info = f"{stem}.dist-info"
    programs = [f"{program} = {target}" for program, target in sorted(scripts.items())]
    files = {
        **files,
        f"{info}/METADATA": _lines(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *more_metadata]),
        f"{info}/WHEEL": _lines(
            ["Wheel-Version: 1.0", "Generator: h100-inference", "Root-Is-Purelib: true", "Tag: py3-none-any"]
        ),
        f"{info}/entry_points.txt": _lines(["[console_scripts]", *programs]),
    }
    record = f"{info}/RECORD"
    files[record] = _record(files, record)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _ZIP_EPOCH)
            entry.external_attr = _REGULAR_FILE
            archive.writestr(entry, files[path])
    return Wheel(f"{stem}-py3-none-any.whl", content.getvalue())


def _package_files(source: Path, package: str) -> Iterator[tuple[str, bytes]]:
    """The programs' sources and the package's data, without what editors leave behind."""
    for module in sorted({path for program in NODE_PROGRAMS for path in closure(program, source)}):
        yield module, (source / module).read_bytes()
    for path in sorted((source / package / "data").rglob("*")):
        if path.is_file() and not path.name.startswith(".") and not path.name.endswith("~") and not _foreign(path):
            yield path.relative_to(source).as_posix(), path.read_bytes()


def _foreign(path: Path) -> bool:
    """Whether no node reads a data file: it is of an engine that GPU nodes do not run, or lies beside the registry."""
    if path.suffix == ".jinja":
        return True
    return path.parent.name == "engine" and path.stem != f"vllm-{versions.load().engine.vllm}"


def _more_metadata(project: _Project, serving: Path) -> Iterator[str]:
    lines = (serving / "requirements.in").read_text(encoding="utf-8").splitlines()
    yield f"Summary: {project.description}"
    yield f"Requires-Python: {project.requires_python}"
    for line in lines:
        if requirement := line.partition("#")[0].strip():
            yield f"Requires-Dist: {requirement}"


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    return _lines([f"{path},," for path in (*sorted(files), record)])


def _lines(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
