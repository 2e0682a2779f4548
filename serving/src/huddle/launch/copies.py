"""Several engines of one model on a node, each a copy with GPUs of its own: which ones those are. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_SPREADING = ("--data-parallel-size", "-dp")


@dataclass(frozen=True)
class Share:
    """The GPUs of one copy, in the order in which the node, or the launcher's CUDA_VISIBLE_DEVICES, has them."""

    tensor: int
    pipeline: int
    nodes: int = 1
    copy: int = 0
    given: str | None = None  # CUDA_VISIBLE_DEVICES

    @property
    def places(self) -> slice:
        """Which of the GPUs, counted from 0."""
        each = self.tensor * self.pipeline // self.nodes
        return slice(self.copy * each, (self.copy + 1) * each)

    @property
    def names(self) -> tuple[str, ...]:
        """What CUDA_VISIBLE_DEVICES is to say to the engine; less where too few are given."""
        if self.given is None:
            return tuple(map(str, range(self.places.start, self.places.stop)))
        return self._given[self.places]

    @property
    def shortage_of_given(self) -> str | None:
        """What CUDA_VISIBLE_DEVICES alone shows to be missing, as `shortage`."""
        return None if self.given is None else self.shortage(len(self._given))

    def shortage(self, present: int) -> str | None:
        """The sentence about GPUs that are missing where `present` ones are; None: all are there."""
        first, end = self.places.start, self.places.stop
        missing = [f"GPU {place}" for place in range(max(first, present), end)]
        if not missing:
            return None
        needs = f"{end - first} GPU{'s' if end - first > 1 else ''}"
        where = "on this node" if self.given is None else "in CUDA_VISIBLE_DEVICES"
        from_here = f", from GPU {first} on, as copy {self.copy}" if self.copy else ""
        there = f"is {present}" if present == 1 else f"are {present}"
        return (
            f"TP {self.tensor} × PP {self.pipeline} needs {needs} {where}{from_here}; there {there}, "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing (counted from 0)"
        )

    @property
    def _given(self) -> tuple[str, ...]:
        return tuple(word.strip() for word in (self.given or "").split(",") if word.strip())


def spreads_itself(extra_args: Sequence[str]) -> bool:
    """Whether a registry entry lets its engine take more GPUs than TP × PP, by vLLM's own data parallel."""
    return any(word.partition("=")[0] in _SPREADING for word in extra_args)


def data_parallel(extra_args: Sequence[str]) -> int:
    """How many copies an engine that spreads itself holds; 1 where nothing says so."""
    words = [part for word in extra_args for part in word.split("=", 1)]
    sizes = [size for word, size in pairwise(words) if word in _SPREADING and size.isdigit()]
    return max(1, int(sizes[-1])) if sizes else 1
