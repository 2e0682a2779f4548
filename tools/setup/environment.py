"""Make the project's `.venv` hold what `requirements/dev.lock` says, and get uv to do it with.

Runs under any Python 3.11 or newer, without packages. Does nothing, in a moment, when nothing changed.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.engine.cache import cache_key, cache_root, fresh_directory, locked
from infra.engine.versions import ROOT

BOOTSTRAP_LOCK = ROOT / "tools" / "setup" / "bootstrap.lock"
LOCK = ROOT / "requirements" / "dev.lock"
EDITABLE = (ROOT, ROOT / "serving")
VENV = ROOT / ".venv"
STAMP = VENV / ".h100-inference"


def wanted_stamp() -> str:
    """Changes when the lock does, or what decides which packages of our own are installed, or the Python."""
    projects = [(folder / "pyproject.toml").read_bytes() for folder in EDITABLE]
    return cache_key([LOCK.read_bytes(), *projects, sys.version.split()[0]])


def is_current() -> bool:
    """Whether the last setup that ended well was for the same files, in this place."""
    return (VENV / "bin" / "python").exists() and STAMP.exists() and STAMP.read_text() == wanted_stamp()


def uv(cache: Path) -> Path:
    """The pinned uv, installed by pip into a virtual environment in *cache* when it is not there yet."""
    home = cache / f"uv-{cache_key([BOOTSTRAP_LOCK.read_bytes(), sys.version.split()[0]])}"
    program = home / "bin" / "uv"
    if not program.exists():
        say("installing uv into the cache")
        with fresh_directory(home) as working:
            call([sys.executable, "-m", "venv", working])
            pip = [working / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            call([*pip, "--require-hashes", "-r", BOOTSTRAP_LOCK])
    return program


def install(program: Path) -> None:
    """Create `.venv` if need be, install the lock (every hash checked), then this project and `serving` as editable."""
    packages = sum(not line.startswith((" ", "#", "-")) for line in LOCK.read_text().splitlines() if line.strip())
    say(f"installing {packages} locked packages into .venv")
    if not (VENV / "bin" / "python").exists():
        call([program, "venv", "--quiet", "--clear", "--python", sys.executable, VENV])
    pip = [program, "pip", "install", "--quiet", "--python", VENV / "bin" / "python"]
    call([*pip, "--require-hashes", "-r", LOCK])
    own = [part for folder in EDITABLE for part in ("-e", folder)]
    call([*pip, "--no-deps", "--no-build-isolation", *own])
    say("compiling what the program imports")
    call([VENV / "bin" / "python", "-m", "tools.setup.bytecode"])
    STAMP.write_text(wanted_stamp())


def call(command: Sequence[object]) -> None:
    """Run a step; CalledProcessError when it fails, after it has said why; the caller's environment stays out."""
    variables = {key: value for key, value in os.environ.items() if key not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, env=variables, stdout=sys.stderr)


def say(text: str) -> None:
    """Progress goes to stderr, one line each."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] = ()) -> int:
    """`--uv` prints the path of uv (for `make lock`), else `.venv` is set up. Exit status 1 when a step failed."""
    cache = cache_root()
    try:
        if "--uv" in arguments:
            with locked(cache, say):
                print(uv(cache))
        elif not is_current():
            with locked(cache, say):
                if not is_current():
                    install(uv(cache))
    except subprocess.CalledProcessError as error:
        say(f"setup failed: {Path(error.cmd[0]).name} ended with exit status {error.returncode} (its message is above)")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
