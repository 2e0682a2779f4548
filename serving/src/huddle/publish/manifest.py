"""What a published version of a model is: its files with their SHA-256, and one digest over all of them."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huddle.errors import InputError

FILE = "huddle-manifest.json"
FORMAT = 1
_VERSION_CHARS = 16
_CHUNK_BYTES = 16 * 1024**2


class ManifestError(InputError):
    """A manifest is missing or broken, or files are not what it says."""


@dataclass(frozen=True)
class FileFacts:
    """One file: bytes and SHA-256 in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A version. `links`: files that are links into another version (an alias's into its base's), path -> target."""

    model: str
    files: Mapping[str, FileFacts]
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of what `sha256sum` prints for all files in the order of their names: anybody can compute it."""
        lines = "".join(f"{self.files[path].sha256}  {path}\n" for path in sorted(self.files))
        return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"

    @property
    def version(self) -> str:
        """A short name; where links lead counts, too."""
        links = json.dumps(dict(sorted(self.links.items())))
        return hashlib.sha256(f"{self.digest}\n{links}".encode()).hexdigest()[:_VERSION_CHARS]

    @property
    def size(self) -> int:
        """Bytes of all files together, those behind links too."""
        return sum(facts.size for facts in self.files.values())

    def text(self) -> str:
        """The file's content; the same manifest gives the same text."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "model": self.model,
            "digest": self.digest,
            "files": {path: vars(self.files[path]) for path in sorted(self.files)},
            "links": dict(sorted(self.links.items())),
        }
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read(directory: Path) -> Manifest:
    """The manifest of a version's directory.

    Raises:
        ManifestError: there is none, or it contradicts itself.
    """
    path = directory / FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        files = {name: FileFacts(int(one["size"]), str(one["sha256"])) for name, one in document["files"].items()}
        found = Manifest(str(document["model"]), files, dict(document["links"]))
        said = document["digest"]
    except FileNotFoundError as error:
        raise ManifestError(f"{directory}: has no {FILE}; publish the model again") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(f"{path}: cannot be read ({error}); publish the model again") from error
    if said != found.digest:
        raise ManifestError(f"{path}: its digest is not that of its files; publish the model again")
    return found


def verify(manifest: Manifest, directory: Path) -> None:
    """Read every file and compare.

    Raises:
        ManifestError: naming the first file that is missing or differs.
    """
    for name, facts in manifest.files.items():
        path = directory / name
        try:
            actual = hash_file(path)
        except OSError as error:
            raise ManifestError(
                f"{path}: cannot be read ({error.strerror or error}); publish the model again"
            ) from error
        if actual != facts:
            raise ManifestError(f"{path}: differs from the manifest; publish the model again")


def hash_file(path: Path) -> FileFacts:
    """Read a whole file: its size in bytes and its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FileFacts(size, digest.hexdigest())
