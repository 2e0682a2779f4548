"""The benchmark of the lab measures both ways and counts every answer."""

from __future__ import annotations

import asyncio

from tools.bench import policy_lab


def test_one_small_run() -> None:
    found = asyncio.run(policy_lab.compare("dev", connections=1, rounds=2, repeats=1))
    assert set(found["ttfb_p50_ms"]) == {"direct", "lab"}
    assert min(found["ttfb_p50_ms"].values()) > 0
    assert found["added_ms"] == found["ttfb_p50_ms"]["lab"] - found["ttfb_p50_ms"]["direct"]
