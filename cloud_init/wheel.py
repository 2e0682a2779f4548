"""The `huddle` wheel, built in pure Python so that it is the same bytes everywhere (PEP 427).

Entries are stored, not compressed: the bundle's xz does better on the whole than deflate on each.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVING = Path(__file__).parent.parent / "serving"
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16


@dataclass(frozen=True)
class Wheel:
    """A wheel's file name and content."""

    name: str
    content: bytes


def build(serving: Path = SERVING) -> Wheel:
    """Build the wheel of `serving/src/huddle` with the metadata of `serving/pyproject.toml`."""
    project = tomllib.loads((serving / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stem = f"{project['name']}-{project['version']}"
    files = {**dict(_package_files(serving / "src", project["name"])), **_metadata(project, serving, stem)}
    record = f"{stem}.dist-info/RECORD"
    files[record] = _record(files, record)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, _ZIP_EPOCH)
            entry.external_attr = _REGULAR_FILE
            archive.writestr(entry, files[path])
    return Wheel(f"{stem}-py3-none-any.whl", content.getvalue())


def _package_files(source: Path, package: str) -> Iterator[tuple[str, bytes]]:
    """Sources and data, without what editors, test runs and the interpreter leave behind."""
    for path in sorted((source / package).rglob("*")):
        relative = path.relative_to(source)
        hidden = any(part.startswith((".", "__pycache__")) or part.endswith("~") for part in relative.parts)
        if path.is_file() and not hidden and path.suffix != ".pyc":
            yield relative.as_posix(), path.read_bytes()


def _metadata(project: Mapping[str, Any], serving: Path, stem: str) -> dict[str, bytes]:
    lines = (serving / "requirements.in").read_text(encoding="utf-8").splitlines()
    requirements = [line for line in (raw.partition("#")[0].strip() for raw in lines) if line]
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
    ]
    scripts = [f"{name} = {target}" for name, target in sorted(project["scripts"].items())]
    return {
        f"{stem}.dist-info/METADATA": _lines(metadata),
        f"{stem}.dist-info/WHEEL": _lines(
            ["Wheel-Version: 1.0", "Generator: h100-inference", "Root-Is-Purelib: true", "Tag: py3-none-any"]
        ),
        f"{stem}.dist-info/entry_points.txt": _lines(["[console_scripts]", *scripts]),
    }


def _record(files: Mapping[str, bytes], record: str) -> bytes:
    def row(path: str) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        return f"{path},sha256={digest},{len(files[path])}"

    return _lines([*(row(path) for path in sorted(files)), f"{record},,"])


def _lines(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()
