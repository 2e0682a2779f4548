"""`huddle tune` on real GPUs: a model on each, within the minutes that the machine is lent; the next call goes on."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import yaml

from tools.h100 import load
from tools.h100.bench import ENGINE, MODEL, SECOND, THIRD, Bench
from tools.h100.load import Load
from tools.h100.service import Program

MINUTES = 7.5  # a command may run for ten there, and the models' files take one
_MODELS = {MODEL: ("chat",), SECOND: ("chat", "documents"), THIRD: ("chat", "documents")}  # 3B is too short for those
_LEVELS = ((8, 96), (64, 768), (256, 2048))
_SMALL = ("--streams", "2", "--fix", "max-num-seqs", "--fix", "max-num-batched-tokens")


def tune(bench: Bench, count: int) -> None:
    """As many models as there are GPUs, at the same time: sweeps, what they wrote, and all that they measured."""
    models = {bench.model: ("chat",)} if bench.small else dict(list(_MODELS.items())[: max(1, count)])
    words = {model: _words(bench, model, copy, loads) for copy, (model, loads) in enumerate(models.items())}
    for model, of in words.items():
        plan = bench.programs.start(f"plan-{model}", [*of, "--dry-run"])
        bench.notes.step(f"{model}: plan", lambda p=plan: _end(p, 60))  # type: ignore[misc]
    started = {model: bench.programs.start(f"tune-{model}", of) for model, of in words.items()}
    for model, program in started.items():
        bench.notes.step(f"{model}: sweep", lambda p=program: _end(p, 60 * MINUTES + 150))  # type: ignore[misc]
        entries = yaml.safe_load(_registry(bench, model).read_text())["models"]
        bench.notes.step(f"{model}: registry", lambda m=model, e=entries: e[m].get("tuned"))  # type: ignore[misc]
    for kept in (bench.workspace("workspace") / "tune").glob("*.json"):
        bench.notes.step(kept.stem, lambda file=kept: json.loads(file.read_text()))  # type: ignore[misc]


def tuned(bench: Bench, _count: int) -> None:
    """The first model as the sweep left it, and untold: another load generator, longer, one after the other."""
    plan, target, generator = (bench.model, "--gpu", bench.gpu), bench.target(direct=True), Load(4)
    for name in ("tuned", "untold"):
        words = bench.words(bench.model, "--load", "chat" if name == "tuned" else "none")
        words += ["--registry", str(_registry(bench, bench.model))]
        engine = bench.programs.start(f"engine-{name}", words)
        started = bench.notes.step(f"{name}: start", lambda e=engine: bench.started(e, ENGINE, [0], *plan))  # type: ignore[misc]
        if "failed" not in started:
            for streams, requests in ((2, 4),) if bench.small else _LEVELS:
                generator.run(target, streams, streams)  # warm
                bench.notes.step(
                    f"{name}: load_{streams}",
                    lambda s=streams, r=requests: load.summary(generator.run(target, s, r)),  # type: ignore[misc]
                )
        bench.notes.step(f"{name}: end", engine.end)


def _words(bench: Bench, model: str, copy: int, loads: tuple[str, ...]) -> list[str]:
    words = ["tune", *bench.words(model, port=None)[1:], "--registry", str(_registry(bench, model))]
    words += ["--vllm", _dummy(bench)]
    words += ["--copy", str(copy), "--minutes", "3" if bench.small else str(MINUTES), "--json"]
    return [*words, *(word for one in loads for word in ("--load", one)), *(_SMALL if bench.small else ())]


def _registry(bench: Bench, model: str) -> Path:
    """Each model has a file of its own, since several sweeps write at the same time."""
    path = bench.state / f"models-{model}.yaml"
    if not path.exists():
        shutil.copy(bench.state / "models.yaml", path)
    return path


def _dummy(bench: Bench) -> str:
    """A vLLM that makes weights by itself, for plain `vllm serve`, too: the larger models have no files of them."""
    if bench.small:
        return bench.programs.vllm
    program = bench.state / "vllm-dummy"
    program.write_text(f'#!/bin/sh\nexec {bench.programs.vllm} "$@" --load-format dummy\n')
    program.chmod(0o755)
    return str(program)


def _end(program: Program, timeout_s: float) -> dict[str, Any]:
    """Wait for a `huddle tune --json`: its document, and what it said while it ran."""
    began = time.monotonic()
    code = program.process.wait(timeout_s)
    said = program.log.read_text(errors="replace")
    lines = said.splitlines()
    document = next((number for number, line in enumerate(lines) if line.startswith("{")), len(lines))
    found, _ = json.JSONDecoder().raw_decode("\n".join(lines[document:])) if document < len(lines) else (None, 0)
    progress = [line for line in lines if line.startswith("huddle")]
    return {"exit_code": code, "seconds": round(time.monotonic() - began, 1), "said": progress, "document": found}
