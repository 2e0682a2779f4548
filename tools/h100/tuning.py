"""`huddle tune` on real GPUs: a sweep within the minutes that the machine is lent; a second call goes on with it."""

import json
import time
from typing import Any

import yaml

from tools.h100 import load
from tools.h100.bench import ENGINE, SECOND, Bench
from tools.h100.load import Load

MINUTES = 7.5  # a command may run for ten there, and the models' files take one
_ASKED_TWICE = ((8, 96), (64, 768), (256, 2048))


def small(bench: Bench, _count: int) -> None:
    """The small model, for chat (its sequences are too short for documents)."""
    _sweep(bench, bench.model, "chat")


def larger(bench: Bench, _count: int) -> None:
    """The larger model, for both loads."""
    _sweep(bench, bench.model if bench.small else SECOND, "chat", "documents")


def tuned(bench: Bench, _count: int) -> None:
    """A launch that uses what the sweep wrote, and one that does not, under a load that the sweep did not choose by."""
    plan = (bench.model, "--gpu", bench.gpu)
    for name in ("tuned", "untold"):
        words = bench.words(bench.model, "--load", "chat" if name == "tuned" else "none", made=True)
        engine = bench.programs.start(f"engine-{name}", words)
        started = bench.notes.step(f"{name}: start", lambda e=engine: bench.started(e, ENGINE, [0], *plan))  # type: ignore[misc]
        if "failed" not in started:
            target, generator = bench.target(direct=True), Load(4)
            for streams, requests in ((2, 4),) if bench.small else _ASKED_TWICE:
                generator.run(target, streams, streams)  # warm
                bench.notes.step(
                    f"{name}: load_{streams}",
                    lambda s=streams, r=requests: load.summary(generator.run(target, s, r)),  # type: ignore[misc]
                )
        bench.notes.step(f"{name}: end", engine.end)


def _sweep(bench: Bench, model: str, *loads: str) -> None:
    words = [word for word in bench.words(model, made=True) if word != "launch"]
    words += ["--minutes", "3" if bench.small else str(MINUTES), "--json"]
    words += [word for one in loads for word in ("--load", one)]
    words += ["--streams", "2", "--fix", "max-num-seqs", "--fix", "max-num-batched-tokens"] if bench.small else []
    if model == SECOND:  # it has no weights; a program that makes them serves plain `vllm serve`, too
        program = bench.state / "vllm-dummy"
        program.write_text(f'#!/bin/sh\nexec {bench.programs.vllm} "$@" --load-format dummy\n')
        program.chmod(0o755)
        words += ["--vllm", str(program)]
    bench.notes.step("plan", lambda: _ask(bench, f"{model}-plan", [*words, "--dry-run"], 60))
    bench.notes.step("sweep", lambda: _ask(bench, f"tune-{model}", words, 60 * MINUTES + 120))
    entries = yaml.safe_load((bench.state / "models.yaml").read_text())["models"]
    bench.notes.step("registry", lambda: entries[model].get("tuned"))
    logs = bench.state / "workspace" / "tune"
    for kept in logs.glob("*.json"):
        bench.notes.step(kept.stem, lambda file=kept: json.loads(file.read_text()))  # type: ignore[misc]


def _ask(bench: Bench, name: str, words: list[str], timeout_s: float) -> dict[str, Any]:
    """Run `huddle tune` to its end; what it said while it ran is in its log."""
    began = time.monotonic()
    program = bench.programs.start(name, ["tune", *words])
    code = program.process.wait(timeout_s)
    said = program.log.read_text(errors="replace")
    start = said.find("\n{") + 1 or (0 if said.startswith("{") else len(said))
    document, _ = json.JSONDecoder().raw_decode(said[start:]) if start < len(said) else (None, 0)
    progress = [line for line in said.splitlines() if line.startswith("huddle")]
    return {"exit_code": code, "seconds": round(time.monotonic() - began, 1), "said": progress, "document": document}
