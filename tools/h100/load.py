"""Streams at a steady concurrency, as `huddle tune` makes them, and what is told of them here."""

import re
import statistics
from collections.abc import Sequence
from typing import Any

from huddle.headers import OVERHEAD_HEADER
from huddle.tune.load import Load, Sample, Target

__all__ = ["PROMPT_LETTERS", "Load", "Sample", "Target", "summary"]

PROMPT_LETTERS = 480  # with the template about 500 tokens of the byte tokenizer; the wrapper adds its system prompt
_OVERHEAD = re.compile(rb"(?i)%b: ([\d.]+)" % OVERHEAD_HEADER.encode())


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Rates and times of a level; milliseconds."""
    good = [s for s in samples if not s.error]
    errors = [s.error for s in samples if s.error]
    if not good:
        return {"requests": 0, "errors": len(errors), "first_errors": errors[:3]}
    seconds = max(s.ended for s in good) - min(s.began for s in good)
    first = sorted((s.first - s.began) * 1e3 for s in good)
    token = sorted((s.ended - s.first) * 1e3 / max(s.tokens - 1, 1) for s in good)
    overhead = sorted(float(found[1]) for s in good if (found := _OVERHEAD.search(s.head)))
    result = {
        "requests": len(good),
        "errors": len(errors),
        "first_errors": errors[:3],
        "seconds": round(seconds, 3),
        "output_tokens_per_s": round(sum(s.tokens for s in good) / seconds, 1),
        "ttft_p50_ms": round(statistics.median(first), 2),
        "ttft_p99_ms": round(first[int(len(first) * 0.99)], 2),
        "tpot_p50_ms": round(statistics.median(token), 3),
        "events_per_answer": round(statistics.mean(s.events for s in good), 1),
    }
    if overhead:
        result |= {
            "overhead_p50_ms": round(statistics.median(overhead), 3),
            "overhead_p99_ms": round(overhead[int(len(overhead) * 0.99)], 3),
        }
    return result
