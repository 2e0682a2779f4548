"""The benchmark's numbers as a table for the terminal and as the page docs/benchmarks/wrapper.md."""

from pathlib import Path
from string import Template
from typing import Any

_COLUMNS = ("requests/s", "TTFB p50 ms", "TTFB p99 ms", "total p99 ms", "CPU µs/chunk", "RSS MiB", "errors")
_KEYS = ("requests_per_s", "ttfb_p50_ms", "ttfb_p99_ms", "total_p99_ms", "cpu_us_per_chunk", "rss_mib", "errors")
_FORMATS = ("{:,.1f}", "{:,.2f}", "{:,.1f}", "{:,.0f}", "{:,.1f}", "{:,.0f}", "{:,.0f}")


def table(report: dict[str, Any]) -> str:
    """All numbers, one block for each number of streams."""
    lines = []
    for streams in _streams(report):
        lines.append(f"\n{streams} streams".ljust(14) + "".join(column.rjust(14) for column in _COLUMNS))
        for name, of in report["results"].items():
            lines.append(name.ljust(13) + "".join(cell.rjust(14) for cell in _cells(_at(of, streams))))
    return "\n".join(lines)


def ratios(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(what, measured, aim) of the issue's aims that this run can speak about."""
    results = report["results"]
    rows = []
    if {"direct", "wrapper"} <= results.keys() and _has(results, 1):
        added = _at(results["wrapper"], 1)["ttfb_p50_ms"] - _at(results["direct"], 1)["ttfb_p50_ms"]
        rows.append(("added to the first byte, 1 stream (p50)", f"{added:.2f} ms", "at most 0.4 ms"))
    if {"nginx", "wrapper"} <= results.keys() and _has(results, 500):
        ours, floor = _at(results["wrapper"], 500), _at(results["nginx"], 500)
        share = ours["requests_per_s"] / floor["requests_per_s"]
        rows.append(("requests/s at 500 streams, against nginx", f"{share:.0%}", "at least 97 %"))
        slower = ours["total_p99_ms"] / floor["total_p99_ms"]
        rows.append(("total p99 at 500 streams, against nginx", f"{slower:.2f} ×", "at most 1.05 ×"))
        rows.append(("first byte, 500 requests at once (p50)", f"{ours['ttfb_p50_ms']:.0f} ms", "at most 20 ms"))
        cost = ours["cpu_us_per_chunk"] / floor["cpu_us_per_chunk"]
        rows.append(("CPU for each chunk at 500 streams, against nginx", f"{cost:.1f} ×", "at most 2 ×"))
        rows.append(("memory at 500 streams", f"{ours['rss_mib']:.0f} MiB", "under 60 MiB"))
    if {"litellm", "wrapper"} <= results.keys() and _has(results, 500):
        times = _at(results["wrapper"], 500)["requests_per_s"] / _at(results["litellm"], 500)["requests_per_s"]
        rows.append(("requests/s at 500 streams, against LiteLLM", f"{times:.0f} ×", "at least 20 ×"))
    return rows


def aims(report: dict[str, Any]) -> str:
    """The table of ratios, for the page and for README.md."""
    rows = [f"| {what} | {measured} | {aim} |" for what, measured, aim in ratios(report)]
    return "\n".join(["| | measured | aim |", "|---|---:|---|", *rows])


def markdown(report: dict[str, Any]) -> str:
    """The page, whole."""
    template = Template((Path(__file__).parent / "wrapper.md.template").read_text())
    blocks = []
    for streams in _streams(report):
        rows = [f"| {name} | " + " | ".join(_cells(_at(of, streams))) + " |" for name, of in report["results"].items()]
        head = f"| {streams} stream{'s' if streams > 1 else ''} | " + " | ".join(_COLUMNS) + " |"
        blocks.append("\n".join([head, "|---" + "|---:" * len(_COLUMNS) + "|", *rows]))
    return template.substitute(
        **report["machine"],
        repeats=report["repeats"],
        note=report.get("note", ""),
        aims=aims(report),
        tables="\n\n".join(blocks),
        soak=_soak(report.get("soak")),
        attacked=_attacked(report.get("attacked")),
        real=_real(report.get("real")),
    )


def _soak(soak: dict[str, Any] | None) -> str:
    if soak is None:
        return "Not measured in this run (`--soak 600`)."
    samples = soak["rss_mib"]
    return (
        f"{soak['seconds']:.0f} s, {soak['connections']} streams at a time, {soak['requests']:,.0f} requests, "
        f"{soak['errors']:.0f} errors: resident memory {samples[0]} MiB after the first tenth, {samples[-1]} MiB at "
        f"the end, at most {max(samples)} MiB."
    )


def _attacked(attacked: dict[str, Any] | None) -> str:
    if attacked is None:
        return "Not measured in this run (`--attacked`)."
    columns = [c for c in zip(_COLUMNS, _KEYS, _FORMATS, strict=True) if c[1] not in ("cpu_us_per_chunk", "rss_mib")]
    rows = ["| abuse | " + " | ".join(column for column, _, _ in columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    for name, of in attacked.items():
        cells = [" / ".join(form.format(of[one][key]) for one in ("nginx", "wrapper")) for _, key, form in columns]
        rows.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _real(real: dict[str, Any] | None) -> str:
    if real is None:
        return "Not measured in this run (`--real URL --model NAME`)."
    rows = ["| streams | TTFB p50 direct → wrapper (ms) | total p50 direct → wrapper (ms) |", "|---:|---:|---:|"]
    for streams, of in real.items():
        direct, ours = of["direct"], of["wrapper"]
        rows.append(
            f"| {streams} | {direct['ttfb_p50_ms']:.1f} → {ours['ttfb_p50_ms']:.1f} "
            f"| {direct['total_p50_ms']:.0f} → {ours['total_p50_ms']:.0f} |"
        )
    return "\n".join(rows)


def _cells(measured: dict[str, float]) -> list[str]:
    return [form.format(measured[key]) for key, form in zip(_KEYS, _FORMATS, strict=True)]


def _streams(report: dict[str, Any]) -> list[int]:
    return sorted(int(count) for count in next(iter(report["results"].values())))


def _has(results: dict[str, Any], streams: int) -> bool:
    return all(streams in of or str(streams) in of for of in results.values())


def _at(of: dict[Any, dict[str, float]], streams: int) -> dict[str, float]:
    """Numbers of streams are words once they have been through JSON."""
    return of[streams] if streams in of else of[str(streams)]
