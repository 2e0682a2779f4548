"""A Pulumi CLI that is already on PATH."""

import shutil
import subprocess
from pathlib import Path

from infra.engine.versions import Version


def find(search_path: str | None, oldest: Version) -> tuple[Path, Version] | str:
    """The `pulumi` on *search_path* with its version, or the reason (half a sentence) why it is not used."""
    found = shutil.which("pulumi", path=search_path)
    if found is None:
        return "PATH has no pulumi"
    version = installed_version(Path(found))
    if version is None:
        return f"{found} does not tell its version"
    if version < oldest:
        return f"{found} is {version}, older than the {oldest} that the Python SDK needs"
    return Path(found), version


def installed_version(pulumi: Path) -> Version | None:
    """What `pulumi version` prints, or None when it cannot be run (a shim without its program, say)."""
    try:
        answer = subprocess.run([pulumi, "version"], capture_output=True, text=True, timeout=30, check=True)
        return Version.parse(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
