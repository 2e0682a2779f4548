"""The versions that the project is built on, read from the files that pin them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
GO_MOD = HERE / "go.mod"
PYTHON_LOCK = ROOT / "requirements" / "dev.lock"

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(-[0-9A-Za-z.-]+)?")


class Version(NamedTuple):
    """A semantic version without build metadata; a pre-release sorts before its release."""

    major: int
    minor: int
    patch: int
    final: bool = True

    @classmethod
    def parse(cls, text: str) -> "Version":
        """Read the first version in *text* (`v3.274.1`, `go1.26.8`, `3.280.0-a.1`).

        Raises:
            ValueError: there is none.
        """
        match = _VERSION.search(text)
        if match is None:
            msg = f"no version number in {text[:60]!r}"
            raise ValueError(msg)
        major, minor, patch, pre_release = match.groups()
        return cls(int(major), int(minor), int(patch or 0), pre_release is None)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def pinned_cli() -> Version:
    """The Pulumi CLI that is downloaded or built when PATH has none that is new enough (infra/engine/go.mod)."""
    return _pinned(GO_MOD, "pulumi", r"github\.com/pulumi/pulumi/pkg/v3 (v\S+)")


def required_go() -> Version:
    """The oldest Go that builds the pinned CLI (the `go` line of infra/engine/go.mod)."""
    return _pinned(GO_MOD, "go", r"(?m)^go (\S+)$")


def oldest_cli() -> Version:
    """The oldest CLI that is accepted from PATH: the engine must not be older than the Python SDK in dev.lock."""
    return _pinned(PYTHON_LOCK, "pulumi", r"(?m)^pulumi==(\S+)")


def command_plugin() -> Version:
    """The version of the command provider's plugin that the Python SDK in the lock asks for."""
    return _pinned(PYTHON_LOCK, "pulumi-command", r"(?m)^pulumi-command==(\S+)")


def _pinned(path: Path, what: str, pattern: str) -> Version:
    match = re.search(pattern, path.read_text(encoding="utf-8"))
    if match is None:
        msg = f"{path.relative_to(ROOT)} does not pin {what}"
        raise ValueError(msg)
    return Version.parse(match[1])
