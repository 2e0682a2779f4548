"""From samples to figures, and from figures to a table and a plot."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table

from huddle.client.load import Sample

PLOT_WIDTH = 40


@dataclass(frozen=True)
class Level:
    """One concurrency. Times in milliseconds, rates per second over the whole level; failed streams count nowhere."""

    concurrency: int
    requests: int
    failed: int
    seconds: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    latency_p50_ms: float
    latency_p95_ms: float
    output_tokens: int
    input_tokens: int
    tokens_per_s: float
    requests_per_s: float
    tokens_per_s_per_stream: float
    error: str | None = None


def summarise(concurrency: int, samples: Sequence[Sample]) -> Level:
    """The figures of one level; zeros when nothing succeeded.

    A stream's rate is its tokens over its whole time. (Without the wait for the first one it would be absurd wherever
    text is held back: by a buffering proxy, or by the engine until the bytes of a letter are complete.)
    """
    good = [sample for sample in samples if sample.error is None and sample.first_token_s is not None]
    seconds = max((s.ended_s for s in samples), default=0.0) - min((s.began_s for s in samples), default=0.0)
    first = [1_000 * (s.first_token_s - s.began_s) for s in good if s.first_token_s is not None]
    whole = [1_000 * (s.ended_s - s.began_s) for s in good]
    rates = [s.output_tokens / (s.ended_s - s.began_s) for s in good]
    tokens = sum(s.output_tokens for s in good)
    silent = "the model said nothing" if len(good) < len(samples) else None
    return Level(
        concurrency=concurrency,
        requests=len(samples),
        failed=len(samples) - len(good),
        seconds=seconds,
        ttft_p50_ms=percentile(first, 50),
        ttft_p95_ms=percentile(first, 95),
        latency_p50_ms=percentile(whole, 50),
        latency_p95_ms=percentile(whole, 95),
        output_tokens=tokens,
        input_tokens=sum(s.input_tokens for s in good),
        tokens_per_s=tokens / seconds if seconds else 0.0,
        requests_per_s=len(good) / seconds if seconds else 0.0,
        tokens_per_s_per_stream=statistics.fmean(rates) if rates else 0.0,
        error=next((s.error for s in samples if s.error), silent),
    )


def percentile(values: Sequence[float], percent: int) -> float:
    """By linear interpolation; 0 of nothing."""
    if len(values) < 2:
        return values[0] if values else 0.0
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def render(levels: Sequence[Level]) -> RenderableType:
    """A table, and under it the two curves that matter: throughput, and the wait for the first token."""
    table = Table(box=None, pad_edge=False)
    headings = ("streams", "requests", "failed", "TTFT p50", "p95 ms", "total p50", "p95 ms", "tok/s", "per stream")
    for heading in headings:
        table.add_column(heading, justify="right")
    for level in levels:
        times = (level.ttft_p50_ms, level.ttft_p95_ms, level.latency_p50_ms, level.latency_p95_ms)
        counts = (level.concurrency, level.requests, level.failed)
        rates = (f"{level.tokens_per_s:,.0f}", f"{level.tokens_per_s_per_stream:,.1f}")
        table.add_row(*(f"{count:,}" for count in counts), *(f"{time:,.0f}" for time in times), *rates)
    throughput = [(level.concurrency, level.tokens_per_s) for level in levels]
    waits = [(level.concurrency, level.ttft_p95_ms) for level in levels]
    plots = (_plot("tok/s by streams", throughput), _plot("TTFT p95 in ms by streams", waits))
    return Group(table, "", *plots)


def _plot(title: str, points: Sequence[tuple[int, float]]) -> RenderableType:
    most = max((value for _, value in points), default=0.0) or 1.0
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(justify="right")
    table.add_column(width=PLOT_WIDTH)
    table.add_column(justify="right")
    for streams, value in points:
        table.add_row(f"{streams:,}", Bar(most, 0, value, width=PLOT_WIDTH), f"{value:,.0f}")
    return table
