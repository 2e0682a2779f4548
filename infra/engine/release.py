"""The official release of the Pulumi CLI."""

import platform
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from infra.engine.cache import Say
from infra.engine.origin import EngineUnavailableError
from infra.engine.versions import Version

CONNECT_TIMEOUT_S = 8
_OPERATING_SYSTEMS = {"Linux": "linux", "Darwin": "darwin"}
_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


def url(version: Version, system: str | None = None, machine: str | None = None) -> str:
    """Address of the official archive for this machine.

    Raises:
        ValueError: there is no release for this system and machine.
    """
    system, machine = system or platform.system(), machine or platform.machine()
    if system not in _OPERATING_SYSTEMS or machine.lower() not in _MACHINES:
        msg = f"there is no official Pulumi release for {system} on {machine}"
        raise ValueError(msg)
    name = f"pulumi-v{version}-{_OPERATING_SYSTEMS[system]}-{_MACHINES[machine.lower()]}.tar.gz"
    return f"https://get.pulumi.com/releases/sdk/{name}"


def download(into: Path, version: Version, say: Say) -> None:
    """Unpack the release's programs into *into*.

    Raises:
        EngineUnavailableError: the download failed; it says why.
    """
    try:
        address = url(version)
        say(f"downloading Pulumi {version} (official release)")
        with (
            urllib.request.urlopen(address, timeout=CONNECT_TIMEOUT_S) as answer,
            tarfile.open(fileobj=answer, mode="r|gz") as archive,
        ):
            for member in archive:
                _unpack_program(archive, member, into)
        (into / "pulumi").stat()
    except (OSError, ValueError, tarfile.TarError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        msg = f"the official release could not be downloaded ({reason})"
        raise EngineUnavailableError(msg) from error


def _unpack_program(archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path) -> None:
    """Programs lie flat in one folder; names are cut to their last part, so nothing can land elsewhere."""
    source = archive.extractfile(member) if member.isfile() else None
    if source is None:
        return
    target = into / Path(member.name).name
    with source, target.open("wb") as handle:
        shutil.copyfileobj(source, handle)
    target.chmod(0o755)
