"""The two loads that an engine is tuned for, and what is told of one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from huddle import registry
from huddle.planner import speed
from huddle.planner.speed import Replica
from huddle.registry.schema import Level
from huddle.tune.load import Sample

SHARED_TOKENS = 128
"""What all prompts of a load begin with, as they do behind a wrapper's system prompt: some use for a prefix cache."""
_FEW_STREAMS = 8


@dataclass(frozen=True)
class Workload:
    """Streams of one length, at several numbers of them at a time."""

    load: registry.Load
    input_tokens: int
    output_tokens: int
    levels: tuple[int, ...]
    rounds: int

    def __str__(self) -> str:
        streams = "/".join(map(str, self.levels))
        return f"{self.load}: {self.input_tokens} tokens in, {self.output_tokens} out, {streams} streams"

    @property
    def length(self) -> int:
        """The longest sequence, with room for a chat template."""
        return self.input_tokens + self.output_tokens + 64

    def requests(self, streams: int) -> int:
        """How many requests a level has: a few streams need more rounds for the same number of figures."""
        return streams * self.rounds * (2 if streams <= _FEW_STREAMS else 1)

    def seconds(self, replica: Replica, front_ends: int) -> float:
        """About how long it takes."""
        loads = [speed.Load(streams, self.input_tokens, self.output_tokens) for streams in self.levels]
        tokens = self.output_tokens
        return sum(self.requests(load.streams) * tokens / replica.served(load, front_ends) for load in loads)


WORKLOADS = {
    registry.Load.CHAT: Workload(registry.Load.CHAT, 512, 128, (8, 64, 256), 4),
    registry.Load.DOCUMENTS: Workload(registry.Load.DOCUMENTS, 8192, 256, (2, 8, 32), 2),
}


class Reading(BaseModel):
    """What one engine did under one load; `failed` is a sentence where that counts for nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: tuple[Level, ...] = ()
    failed: str | None = None


def level(streams: int, samples: Sequence[Sample]) -> Level:
    """The figures of a level; no sample of it has failed."""
    seconds = max(s.ended for s in samples) - min(s.began for s in samples)
    return Level(
        streams=streams,
        tokens_per_s=round(sum(s.tokens for s in samples) / seconds, 1),
        ttft_p95_ms=_p95_ms([s.first - s.began for s in samples]),
        token_p95_ms=_p95_ms([gap for s in samples for gap in s.gaps]),
    )


def _p95_ms(seconds: Sequence[float]) -> float:
    ordered = sorted(seconds)
    return round(1e3 * ordered[int(len(ordered) * 0.95)], 2) if ordered else 0.0
