"""The wrapper under minutes of steady load: every answer comes whole, and its memory stays where it was."""

from __future__ import annotations

import pytest

from tools.bench import wrapper as bench_wrapper

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
SECONDS = 240
"""Some 20,000 requests on an idle machine."""
GROWTH_MIB = 8.0
"""For the allocator's own ways. A leak of a kilobyte a request is more than that."""


def test_memory_stays_flat_and_no_answer_is_lost() -> None:
    measured = bench_wrapper.soak(SECONDS, workers=1)
    assert measured["errors"] == 0
    assert measured["requests"] > 0
    settled, *later = measured["rss_mib"][1:]  # the first sample is from when it was still warming up
    assert max(later, default=settled) - settled < GROWTH_MIB, measured["rss_mib"]
