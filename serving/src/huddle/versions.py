"""The pinned versions of `data/versions.yaml`: the one place where they are said."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from huddle import data_file

_DATA = Path(__file__).parent / "data" / "versions.yaml"


class _Pins(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EngineVersions(_Pins):
    """What the GPU nodes run."""

    vllm: str
    torch: str
    ray: str
    python: str


class CpuEngineVersions(_Pins):
    """A vLLM for the CPU that the tests run on; `record` is the SHA-256 of its `data/engine/vllm-VERSION.json`."""

    torch: str
    record: str


class Driver(_Pins):
    """The NVIDIA driver: its branch (`580`) and version."""

    branch: str
    version: str


class Image(_Pins):
    """The VM image in Azure's Marketplace."""

    publisher: str
    offer: str
    sku: str


class Versions(_Pins):
    """Every pinned version."""

    engine: EngineVersions
    cpu_engines: Mapping[str, CpuEngineVersions]
    """By version of vLLM; that of `engine` is among them."""
    driver: Driver
    image: Image


@cache
def load() -> Versions:
    """Read the pinned versions from data/versions.yaml.

    Raises:
        InputError: the file is wrong.
    """
    return data_file.load(_DATA, Versions)
