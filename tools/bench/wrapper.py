"""Measure what the wrapper costs: direct, nginx (the floor), the wrapper with everything on, LiteLLM; one run.

    python -m tools.bench.wrapper                          # all subjects, a table and JSON on stdout
    python -m tools.bench.wrapper --json out.json --markdown docs/benchmarks/wrapper.md
    python -m tools.bench.wrapper --attacked               # only nginx and the wrapper, while somebody abuses them
    python -m tools.bench.wrapper --soak 600               # only the wrapper, for ten minutes: is its memory flat?
    python -m tools.bench.wrapper --real http://127.0.0.1:5005 --model tiny   # against a vLLM that runs already

All processes share this machine's cores, all traffic is on loopback. Subjects take turns `--repeats` times, and each
number is the median of the turns, so that a moment's noise from elsewhere hits no single subject.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tools.bench import abuse, subjects
from tools.bench.report import markdown, table

HERE = Path(__file__).parent
CHUNKS = 50
INTERVAL_MS = 20.0
SUBJECTS = ("direct", "nginx", "wrapper", "litellm")
STREAMS = {1: 12, 64: 5, 500: 3}  # connections → requests on each
ATTACKED = (64, 8)  # as long as most abuses last
ATTACKS = [name for name in abuse.ABUSES if name != "crowd"]  # more connections than either takes as configured here


def load(port: int, connections: int, rounds: int, **options: Any) -> dict[str, float]:
    """One run of the load generator."""
    argv = [sys.executable, str(HERE / "load.py"), "--port", str(port)]
    argv += ["--connections", str(connections), "--rounds", str(rounds)]
    for name, value in options.items():
        argv += [f"--{name.replace('_', '-')}", str(value)]
    result: dict[str, float] = json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)
    return result


def measure(subject: subjects.Subject, connections: int, rounds: int) -> dict[str, float]:
    """Load and cost of one subject at one number of streams."""
    before = subjects.cpu_s(subject.pids)
    events = CHUNKS + 1 + subjects.EXTRA_EVENTS.get(subject.name, 0)  # the tokens and [DONE]
    measured = load(subject.port, connections, rounds, key=subjects.KEY, events=events)
    measured["cpu_s"] = subjects.cpu_s(subject.pids) - before
    chunks = max(measured["requests"], 1) * (CHUNKS + 1)
    measured["cpu_us_per_chunk"] = measured["cpu_s"] / chunks * 1e6
    measured["rss_mib"] = subjects.rss_mib(subject.pids)
    return measured


def compare(names: list[str], streams: dict[int, int], repeats: int, workers: int) -> dict[str, Any]:
    """Every subject at every number of streams, in turns."""
    turns: dict[str, dict[int, list[dict[str, float]]]] = {name: {count: [] for count in streams} for name in names}
    with tempfile.TemporaryDirectory() as made, subjects.backend(CHUNKS, INTERVAL_MS) as backend_port:
        for turn in range(repeats):
            for name in names:
                if name == "litellm" and turn:
                    continue  # it takes minutes for what the others do in seconds; one turn is enough to see it
                with subjects.subject(name, backend_port, Path(made), workers) as subject:
                    for count, rounds in streams.items():
                        load(subject.port, count, 1, key=subjects.KEY)  # warm up: code, and connections to the backend
                        measured = measure(subject, count, 1 if name == "litellm" and count > 1 else rounds)
                        turns[name][count].append(measured)
                        rate = measured["requests_per_s"]
                        progress(f"turn {turn + 1}/{repeats} {name} {count} streams: {rate:.0f} requests/s")
    return {name: {count: _median(runs) for count, runs in of.items()} for name, of in turns.items()}


def soak(seconds: float, workers: int, connections: int = 100) -> dict[str, Any]:
    """The wrapper under steady load: memory at the start, and at every tenth of the time."""
    with (
        tempfile.TemporaryDirectory() as made,
        subjects.backend(CHUNKS, INTERVAL_MS) as backend_port,
        subjects.subject("wrapper", backend_port, Path(made), workers) as subject,
    ):
        samples: list[float] = []
        answered = errors = 0.0
        begun = time.monotonic()
        while (elapsed := time.monotonic() - begun) < seconds:
            measured = load(subject.port, connections, max(int(seconds / 10), 2), key=subjects.KEY)
            answered += measured["requests"]
            errors += measured["errors"]
            samples.append(round(subjects.rss_mib(subject.pids), 1))
            progress(f"{elapsed:.0f} s: {samples[-1]} MiB")
    return {"seconds": seconds, "connections": connections, "requests": answered, "errors": errors, "rss_mib": samples}


def attacked(workers: int) -> dict[str, Any]:
    """nginx and the wrapper while somebody abuses them: abuse → subject → load and cost."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made, abuse.engine(CHUNKS) as engine_port:
        for name in ATTACKS:
            found[name] = {}
            for attacked_one in ("nginx", "wrapper"):
                with (
                    subjects.subject(attacked_one, engine_port, Path(made), workers) as subject,
                    ThreadPoolExecutor(1) as beside,
                ):
                    load(subject.port, ATTACKED[0], 1, key=subjects.KEY)
                    attack = beside.submit(abuse.attack, name, subject.port)
                    found[name][attacked_one] = measure(subject, *ATTACKED)
                    attack.result()
            progress(f"{name}: {found[name]}")
    return found


def real(url: str, model: str, repeats: int) -> dict[str, Any]:
    """The wrapper in front of a running engine: what it adds to one stream, and to eight."""
    port = int(url.rsplit(":", 1)[1])
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made, subjects.subject("wrapper", port, Path(made), 1, model) as subject:
        for count in (1, 8):
            turns: dict[str, list[dict[str, float]]] = {"direct": [], "wrapper": []}
            for _ in range(repeats):
                for name, asked in (("direct", port), ("wrapper", subject.port)):
                    options = {"key": subjects.KEY, "model": model, "events": 0, "max_tokens": CHUNKS}
                    turns[name].append(load(asked, count, 10 if count == 1 else 3, **options))
            result[str(count)] = {name: _median(runs) for name, runs in turns.items()}
    return result


def machine() -> dict[str, Any]:
    """What it was measured on."""
    cpus = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "cpu": cpus[0].partition(":")[2].strip() if cpus else platform.machine(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def progress(line: str) -> None:
    """One line for the person who waits."""
    print(line, file=sys.stderr, flush=True)


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {
        key: (sum if key == "errors" else statistics.median)(
            run[key] for run in runs
        )  # an error is never averaged away
        for key in runs[0]
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--streams", nargs="+", type=int, choices=list(STREAMS), default=list(STREAMS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--note", help="a sentence about the circumstances, for the page")
    parser.add_argument("--json", type=Path, help="write the numbers there as well")
    parser.add_argument("--markdown", type=Path, help="write the page there (from the numbers of this run)")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="only the wrapper, for so long")
    parser.add_argument(
        "--attacked", action="store_true", help="only nginx and the wrapper, while somebody abuses them"
    )
    parser.add_argument("--real", metavar="URL", help="only the wrapper, in front of this engine")
    parser.add_argument("--model", default="bench", help="the engine's model (with --real)")
    asked = parser.parse_args()
    for name in ("nginx", "wrapper") if asked.attacked else asked.subjects:
        if reason := subjects.available(name):
            parser.error(f"{reason}; leave it out with --subjects")
    report: dict[str, Any] = {"machine": machine()}
    if asked.note:
        report["note"] = asked.note
    if asked.soak:
        report["soak"] = soak(asked.soak, asked.workers)
    elif asked.attacked:
        report["attacked"] = attacked(asked.workers)
    elif asked.real:
        report["real"] = real(asked.real, asked.model, asked.repeats)
    else:
        streams = {count: STREAMS[count] for count in asked.streams}
        report["repeats"] = asked.repeats
        report["results"] = compare(asked.subjects, streams, asked.repeats, asked.workers)
        progress(table(report))
    if asked.json:
        previous = json.loads(asked.json.read_text()) if asked.json.exists() else {}
        report = previous | report
        asked.json.write_text(json.dumps(report, indent=2) + "\n")
    if asked.markdown:
        asked.markdown.write_text(markdown(json.loads(json.dumps(report))))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
