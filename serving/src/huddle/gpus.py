"""Facts about GPUs and fabrics, from `data/gpus.yaml`: data with its source, no decisions."""

import difflib
import math
from enum import UNIQUE, StrEnum, verify
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict

from huddle import data_file
from huddle.errors import InputError

_DATA = Path(__file__).parent / "data" / "gpus.yaml"
MIB_PER_GIB = 1024


@verify(UNIQUE)
class Source(StrEnum):
    """How a figure is known."""

    MEASURED = "measured"
    REPORTED = "reported"
    ASSUMED = "assumed"


@verify(UNIQUE)
class Scope(StrEnum):
    """Whether a fabric joins the GPUs of one node or several nodes."""

    NODE = "node"
    NETWORK = "network"


class _Row(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )


class _GpuRow(_Row):
    title: str
    smi_names: tuple[str, ...]
    memory_mib: int
    visible_gib: float
    bandwidth_gb_s: float
    bf16_tflops: float
    nvlink_group: int
    batched_tokens: int
    source: Source
    aliases: tuple[str, ...] = ()


class Gpu(_GpuRow):
    """One GPU type. Bandwidth in 10^9 bytes per second, compute in dense bfloat16 TFLOP/s, both from the data sheet."""

    name: str


class _FabricRow(_Row):
    title: str
    scope: Scope
    rdma: bool
    source: Source
    points: tuple[tuple[int, float], ...]
    gbit_per_s: float = 0


class Fabric(_FabricRow):
    """A link between GPUs: `points` are (bytes, microseconds) of one all-reduce of two ranks."""

    name: str

    def all_reduce_us(self, size: float, ranks: int = 2) -> float:
        """Microseconds for one all-reduce of `size` bytes on every one of `ranks` GPUs.

        Interpolated in log-log between the points of two ranks. More ranks move 2(n-1)/n of the bytes in the ring
        instead of 1, and over a network each doubling adds a hop: assumptions, measured for two ranks only.
        """
        if ranks < 2 or size <= 0:
            return 0.0
        hops = math.log2(ranks) - 1 if self.scope is Scope.NETWORK else 0.0
        return self._two_ranks_us(size * 2 * (ranks - 1) / ranks) + hops * self.points[0][1]

    def _two_ranks_us(self, moved: float) -> float:
        first_size, first_us = self.points[0]
        if moved <= first_size:
            return first_us
        last_size, last_us = self.points[-1]
        if moved >= last_size:
            return last_us * moved / last_size
        for (low, low_us), (high, high_us) in pairwise(self.points):
            if moved <= high:
                part = math.log(moved / low) / math.log(high / low)
                return float(low_us * (high_us / low_us) ** part)
        raise AssertionError("points are sorted and cover the size")


class UnknownHardwareError(InputError):
    """A GPU or fabric that the tables do not have."""


def gpu(name: str) -> Gpu:
    """Look a GPU up by name or alias.

    Raises:
        UnknownHardwareError: with the nearest names.
    """
    return _lookup(gpus(), name, "GPU")


def fabric(name: str) -> Fabric:
    """Look a fabric up by name.

    Raises:
        UnknownHardwareError: with the nearest names.
    """
    return _lookup(fabrics(), name, "fabric")


def gpu_by_smi_name(title: str) -> Gpu | None:
    """The GPU that nvidia-smi calls `title`, or None."""
    return next((g for g in gpus().values() if title.strip() in g.smi_names), None)


class _Tables(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: dict[str, _GpuRow]
    fabrics: dict[str, _FabricRow]


@cache
def gpus() -> dict[str, Gpu]:
    """All GPUs by name, aliases included; raises InputError for a wrong file."""
    table: dict[str, Gpu] = {}
    for name, row in _tables().gpus.items():
        table |= dict.fromkeys((name, *row.aliases), Gpu(name=name, **dict(row)))
    return table


@cache
def fabrics() -> dict[str, Fabric]:
    """All fabrics by name; raises InputError for a wrong file."""
    return {name: Fabric(name=name, **dict(row)) for name, row in _tables().fabrics.items()}


@cache
def _tables() -> _Tables:
    return data_file.load(_DATA, _Tables)


T = TypeVar("T")


def _lookup(table: dict[str, T], name: str, what: str) -> T:
    found = table.get(name.lower())
    if found is not None:
        return found
    longer = [known for known in table if known.startswith(name.lower())] if name else []
    near = longer or difflib.get_close_matches(name.lower(), table, n=1, cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(table)}"
    raise UnknownHardwareError(f"no {what} {name!r}; {hint}")
