"""Pack what an H100 machine without a network lacks: vLLM, its dependencies, Ray, for Python 3.12 on x86-64.

    uv venv -p 3.12 V && uv pip install --python V/bin/python --override tools/h100/leave-out.txt \
        vllm==0.26.0 torch==2.11.0 transformers==5.17.0 ray==2.56.1 httpx2
    python -m tools.h100.pack V/lib/python3.12/site-packages image-packages.txt .h100/site.tar.xz --without ray
    python -m tools.h100.pack V/lib/python3.12/site-packages image-packages.txt .h100/ray.tar.xz --only ray

`image-packages.txt` names, one a line, the packages that the machine has; every other package of V is packed, less what
a dense model on an H100 never opens.
"""

import argparse
import re
import subprocess
import tarfile
from collections.abc import Iterator
from importlib import metadata
from io import BytesIO
from pathlib import Path, PurePosixPath

from tools.h100 import fatbin

ARCHITECTURE = 90  # Hopper
LIBRARIES = re.compile(r"vllm/(_C_stable_libtorch|_moe_C_stable_libtorch)\.abi3\.so")
LEFT_OUT = re.compile(
    r"""vllm/(vllm-rs|_rust_\w+\.so|_flashmla\w*|_qutlass_C|third_party/.*\.(h|hpp|cuh|cu|so)$)
    |vllm/vllm_flash_attn/_vllm_fa2_C
    |vllm/kernels/helion/configs/
    |ray/(jars|rllib|dashboard/client|cpp)/
    |mistral_common/data/
    |pycountry/locales/
    |.*\.pyc$|.*/tests?/|\.\./
    """,
    re.VERBOSE,
)
PACKAGES_LEFT_OUT = {"fastapi-cloud-cli", "fastapi-cli", "sentry-sdk", "rignore", "fastar", "detect-installer", "nvtx"}


def normal(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def files(site: Path, left_out: set[str], only: set[str]) -> Iterator[tuple[PurePosixPath, Path]]:
    """The files of every package not left out (or of `only` these), as (name in the archive, where it is)."""
    for package in metadata.distributions(path=[str(site)]):
        name = normal(package.metadata["Name"])
        if name in left_out | PACKAGES_LEFT_OUT or (only and name not in only):
            continue
        for file in package.files or ():
            path = site / file
            if not LEFT_OUT.match(str(file)) and path.is_file():
                yield PurePosixPath(file), path


def content(name: PurePosixPath, path: Path) -> bytes:
    """A file's bytes, with other GPUs' code taken out."""
    data = path.read_bytes()
    return fatbin.keep(data, ARCHITECTURE) if LIBRARIES.match(str(name)) else data


def pack(site: Path, left_out: set[str], only: set[str], archive: Path) -> int:
    """Write the archive; returns its size in bytes. (A long window: one kernel is much like the next.)"""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        archive.open("wb") as squeezed,
        subprocess.Popen(["xz", "--lzma2=preset=1,dict=128MiB"], stdin=subprocess.PIPE, stdout=squeezed) as xz,
        tarfile.open(fileobj=xz.stdin, mode="w|") as tar,
    ):
        for name, path in files(site, left_out, only):
            data = content(name, path)
            member = tarfile.TarInfo(str(name))
            member.size, member.mode = len(data), path.stat().st_mode & 0o777
            tar.addfile(member, BytesIO(data))
    return archive.stat().st_size


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="site-packages of the environment V")
    parser.add_argument("present", type=Path, help="names of the packages that the machine has")
    parser.add_argument("archive", type=Path)
    parser.add_argument("--only", nargs="+", default=[], help="just these packages")
    parser.add_argument("--without", nargs="+", default=[], help="not these packages")
    asked = parser.parse_args()
    present = {normal(line.strip()) for line in asked.present.read_text().splitlines() if line.strip()}
    size = pack(asked.site, present | set(asked.without), set(asked.only), asked.archive)
    print(f"{asked.archive}: {size:,} bytes")


if __name__ == "__main__":
    main()
