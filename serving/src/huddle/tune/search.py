"""Which engine to measure next, and which is best so far, from what was measured. Pure.

Coordinate descent: one knob after the other, each of its values over the best so far. Why: docs/decisions/0023.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from huddle.registry import Flags, KvCacheType
from huddle.registry.schema import Level
from huddle.tune.workload import Reading

GAIN = 1.02
"""How much faster a value must be to be taken: one run differs from the next by as much."""
FIRST_TOKEN_SLACK_MS = 10.0
TOKEN_SLACK_MS = 1.0
"""What a 95th percentile may be worse by in any case: at few streams a tolerance in per cent is less than the noise."""
_VALUES: dict[str, tuple[Any, ...]] = {  # those first that change most, should the time end
    "max_num_batched_tokens": (2048, 4096, 8192, 16384),
    "kv_cache_dtype": (KvCacheType.AUTO, KvCacheType.FP8),
    "api_server_count": (1, 2, 4, 8),
    "max_num_seqs": (128, 256, 512),
    "enable_prefix_caching": (True, False),
}
NAMES = tuple(name.replace("_", "-") for name in _VALUES)
ON_REQUEST = ("kv-cache-dtype", "enable-prefix-caching")
"""Those that may change answers, or whose use prompts of one turn do not show."""
Runs = Mapping[Flags, Reading]


@dataclass(frozen=True)
class Knob:
    """A flag and the values to try instead of what `huddle launch` chooses."""

    name: str
    values: tuple[Any, ...]


def knobs(
    untold: Mapping[str, Any], cores: int, left_alone: Iterable[str] = (), asked: Iterable[str] = ()
) -> tuple[Knob, ...]:
    """What to try, where `untold` is what `huddle launch` chooses and an engine has `cores`.

    `left_alone` and `asked` (of those on request) are names as options are spelled.
    """
    kept = {name.replace("-", "_") for name in {*left_alone, *ON_REQUEST} - {*asked}}
    most = max(2, cores // 2)  # API servers: the engine and the client need some cores, too
    found = []
    for name, values in _VALUES.items():
        new = [value for value in values if value != untold.get(name)]
        tried = tuple(value for value in new if name != "api_server_count" or value <= most)
        if name not in kept and tried:
            found.append(Knob(name, tried))
    return tuple(found)


def step(knobs: Sequence[Knob], runs: Runs, tolerance: float) -> tuple[Flags, Flags | None]:
    """The best so far, and the next to measure; None when nothing is left."""
    best = Flags()
    if best not in runs:
        return best, best
    for knob in knobs:
        tried = [best.model_copy(update={knob.name: value}) for value in knob.values]
        for flags in tried:
            if flags not in runs:
                return best, flags
        best = _better(best, tried, runs, tolerance)
    return best, None


def most_engines(knobs: Sequence[Knob], loads: int) -> int:
    """How many engines a sweep starts at most, the untold one among them; loads often agree, and need fewer."""
    return 1 + loads * sum(len(knob.values) for knob in knobs)


def gain(levels: Sequence[Level], other: Sequence[Level]) -> float:
    """Tokens per second over another's: the geometric mean of the levels, so that each counts the same."""
    ratios = [one.tokens_per_s / two.tokens_per_s for one, two in zip(levels, other, strict=True)]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if all(ratios) else 0.0


def objection(reading: Reading, untold: Reading, tolerance: float) -> str | None:
    """Why an engine is not taken however fast it is; None: nothing speaks against it."""
    if reading.failed:
        return reading.failed
    for one, two in zip(reading.levels, untold.levels, strict=True):
        limits = (
            ("first token", one.ttft_p95_ms, two.ttft_p95_ms, FIRST_TOKEN_SLACK_MS),
            ("next token", one.token_p95_ms, two.token_p95_ms, TOKEN_SLACK_MS),
        )
        for what, is_ms, was_ms, slack_ms in limits:
            if is_ms > max(was_ms * (1 + tolerance), was_ms + slack_ms):
                return f"at {one.streams} streams the p95 of the {what} is {is_ms:g} ms, untold {was_ms:g} ms"
    return None


def _better(best: Flags, tried: Sequence[Flags], runs: Runs, tolerance: float) -> Flags:
    """The fastest of those that may be taken, if it is faster by more than chance."""
    untold = runs[Flags()]
    good = [flags for flags in tried if objection(runs[flags], untold, tolerance) is None]
    fastest = max(good, key=lambda flags: gain(runs[flags].levels, untold.levels), default=best)
    return fastest if gain(runs[fastest].levels, runs[best].levels) >= GAIN else best
