"""The benchmark measures, counts every answer, and writes the page from its numbers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
from tools.bench import cpu, report, subjects  # noqa: E402
from tools.bench import wrapper as bench_wrapper  # noqa: E402


def row(**changes: float) -> dict[str, float]:
    return dict.fromkeys([*report._KEYS, "total_p50_ms"], 10.0) | changes


def test_one_small_run_through_the_wrapper(tmp_path: Path) -> None:
    with subjects.backend(5, 1) as backend, subjects.subject("wrapper", backend, tmp_path, 1) as subject:
        options = {"key": subjects.KEY, "events": 6}
        measured = bench_wrapper.load(subject.port, 4, 3, **options)
        assert (measured["requests"], measured["errors"]) == (12, 0)
        assert subjects.rss_mib(subject.pids) > 10
        miscounted = bench_wrapper.load(subject.port, 1, 2, key=subjects.KEY, events=7)
        assert (miscounted["requests"], miscounted["errors"]) == (0, 2)
        refused = bench_wrapper.load(subject.port, 1, 1, key="wrong", events=6, timeout_s=2)
        assert refused["errors"] == 1


def test_the_cpu_of_a_hop_is_told_by_request_and_by_chunk() -> None:
    found = uvloop.run(cpu.measure("wrapper", connections=2, requests=8, repeats=1))
    assert found["us_per_request"] > found["us_per_chunk"] > 0
    assert uvloop.run(cpu.measure("relay", connections=2, requests=8, repeats=1))["us_per_request"] > 0


def test_a_cut_answer_ends_the_measuring_of_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu.Engine, "next", lambda self: self._transport.abort())
    with pytest.raises(ConnectionError, match="closed the connection"):
        uvloop.run(cpu.measure("relay", connections=1, requests=1, repeats=1))


def test_errors_are_never_averaged_away() -> None:
    assert bench_wrapper._median([row(errors=0), row(errors=1), row(errors=0)])["errors"] == 1
    assert bench_wrapper._median([row(ttfb_p50_ms=1), row(ttfb_p50_ms=9), row(ttfb_p50_ms=2)])["ttfb_p50_ms"] == 2


def test_the_page_is_made_from_the_numbers() -> None:
    streams = {1: row(ttfb_p50_ms=1.0), 500: row(requests_per_s=400.0)}
    results = {
        "direct": {1: row(ttfb_p50_ms=0.5), 500: row()},
        "nginx": {1: row(), 500: row(requests_per_s=500.0)},
        "wrapper": streams,
        "litellm": {1: row(), 500: row(requests_per_s=10.0)},
    }
    run = {"machine": bench_wrapper.machine(), "repeats": 3, "results": results}
    run = json.loads(json.dumps(run))
    page = report.markdown(run)
    assert "| added to the first byte, 1 stream (p50) | 0.50 ms | at most 0.4 ms |" in page
    assert "| requests/s at 500 streams, against nginx | 80% | at least 97 % |" in page
    assert "| requests/s at 500 streams, against LiteLLM | 40 × | at least 20 × |" in page
    assert "wrapper" in report.table(run)
    run["soak"] = {"seconds": 600, "connections": 100, "requests": 5, "errors": 0, "rss_mib": [50.0, 51.0, 50.5]}
    assert "51.0 MiB" in report.markdown(run)


def test_the_published_page_is_the_published_numbers() -> None:
    numbers = json.loads((ROOT / "docs/benchmarks/wrapper.json").read_text())
    assert report.markdown(numbers) == (ROOT / "docs/benchmarks/wrapper.md").read_text()
    assert report.aims(numbers) in (ROOT / "README.md").read_text()


def test_help() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.wrapper", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--soak" in done.stdout
