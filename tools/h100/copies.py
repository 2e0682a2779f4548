"""A copy of the model on each of two GPUs: one engine with data parallel against an engine for each GPU.

The question behind it: what shall a node with several GPUs run, when the model needs only some of them?
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tools.h100 import checks, load, service
from tools.h100.bench import ENGINE, OTHER, SECOND, Bench
from tools.h100.load import Load, Sample, Target
from tools.h100.service import Program

_LEVELS = ((8, 96), (64, 768), (256, 2048))
_ROUNDS = 2


def together(model: str) -> str:
    """The registry's name of a model that one engine serves from two GPUs."""
    return f"{model}-on-two"


def over_two_gpus(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A registry entry whose engine has a copy on each of two GPUs."""
    return {**entry, "extra-args": [*entry.get("extra-args", []), "--data-parallel-size", "2"]}


@dataclass(frozen=True)
class Served:
    """The engines of one layout, with the port of each."""

    engines: Mapping[int, Program]
    model: str


def small(bench: Bench, count: int) -> None:
    """Both layouts for the small model."""
    _measure(bench, count, bench.model)


def larger(bench: Bench, count: int) -> None:
    """Both layouts for the larger model."""
    _measure(bench, count, bench.model if bench.small else SECOND)


def _measure(bench: Bench, count: int, model: str) -> None:
    if count < 2 and not bench.small:
        bench.notes.step("start", lambda: {"failed": f"{count} GPU"})
        return
    for name, start in (("data-parallel", _one_engine), ("engines", _two_engines)):
        served = start(bench, model)
        if _started(bench, name, served):
            _look(bench, name, served)
        bench.programs.end_all()
        checks.memory_back()


def _one_engine(bench: Bench, model: str) -> Served:
    name = together(model)
    fronts = ("--api-server-count", "2" if bench.small else "4")
    words = bench.words(name, *fronts, "--vllm", _vllm(bench, None), workspace=f"workspace-{name}", made=True)
    return Served({ENGINE: bench.programs.start(f"engine-{name}", words)}, name)


def _two_engines(bench: Bench, model: str) -> Served:
    engines = {}
    for gpu, port in enumerate((ENGINE, OTHER)):
        vllm = ("--vllm", _vllm(bench, 29_500 + 20 * gpu))
        words = bench.words(model, *vllm, port=port, workspace=f"workspace-{gpu}", made=True)
        engines[port] = bench.programs.start(f"engine-{model}-{gpu}", words, {"CUDA_VISIBLE_DEVICES": str(gpu)})
    return Served(engines, model)


def _vllm(bench: Bench, first_port: int | None) -> str:
    """vLLM with ports of its own, or any: engines that start at once and look for theirs from one number collide."""
    program = bench.state / f"vllm-{first_port or 'any'}"
    ports = f"export VLLM_PORT={first_port}" if first_port else "unset VLLM_PORT"
    program.write_text(f'#!/bin/sh\n{ports}\nexec {bench.programs.vllm} "$@"\n')
    program.chmod(0o755)
    return str(program)


def _started(bench: Bench, name: str, served: Served) -> bool:
    def wait() -> dict[str, Any]:
        seconds = {
            port: engine.wait_for(f"http://127.0.0.1:{port}/health", 300, once_said="huddle launch: started pid")
            for port, engine in served.engines.items()
        }
        facts = {port: engine.facts() for port, engine in served.engines.items()}
        return {"ready_s": seconds, "gpu_mib": service.gpu_used_mib(), "vllm": facts}

    return "failed" not in bench.notes.step(f"{name}: start", wait)


def _look(bench: Bench, name: str, served: Served) -> None:
    note = bench.notes.step
    base = replace(bench.target(direct=True), model=served.model)
    targets = [replace(base, port=port) for port in served.engines]
    for streams, requests in ((2, 4),) if bench.small else _LEVELS:
        _spread(targets, streams, streams)  # warm
        note(f"{name}: load_{streams}", lambda s=streams, r=requests: _rounds(targets, s, r))  # type: ignore[misc]
    note(f"{name}: gpu_mib_after_load", service.gpu_used_mib)
    if not bench.small and len(targets) == 1:
        bench.model, kept = served.model, bench.model
        note(f"{name}: wrapper_ready_s", bench.start_wrapper)
        note(f"{name}: wrapper_load_256", lambda: _rounds([bench.target(direct=False)], *_LEVELS[-1]))
        if bench.wrapper:
            bench.wrapper.end()
        bench.model = kept
    *rest, last = served.engines
    killed = served.engines[last]
    note(
        f"{name}: kill of one",
        lambda: _while_streams_run(bench, targets, lambda: checks.kill_engine_core(killed, last)),
    )
    if not rest:
        served = _one_engine(bench, served.model.removesuffix(together("")))
        if not _started(bench, f"{name}, again", served):
            return
    left = [replace(base, port=ENGINE)]
    note(f"{name}: drain", lambda: _while_streams_run(bench, left, lambda: _drain(served.engines[ENGINE])))


def _rounds(targets: Sequence[Target], streams: int, requests: int) -> list[dict[str, Any]]:
    return [load.summary(_spread(targets, streams, requests)) for _ in range(_ROUNDS)]


_generators = {ENGINE: Load(4), OTHER: Load(4), 8000: Load(8)}


def _spread(targets: Sequence[Target], streams: int, requests: int) -> list[Sample]:
    """The streams, an equal part to each target, all at once."""
    parts = len(targets)
    with ThreadPoolExecutor(parts) as pool:
        running = [
            pool.submit(_generators[target.port].run, target, streams // parts, requests // parts) for target in targets
        ]
        return [sample for part in running for sample in part.result()]


def _drain(engine: Program) -> dict[str, Any]:
    began = time.monotonic()
    code = engine.end(180)
    return {
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 2),
        "said": engine.said("huddle launch:")[-4:],
    }


def _while_streams_run(bench: Bench, targets: Sequence[Target], act: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What becomes of 32 long streams when something happens to an engine."""
    streams, tokens = (4, 64) if bench.small else (32, 1000)
    samples: list[Sample] = []
    long = [replace(target, max_tokens=tokens) for target in targets]
    asking = threading.Thread(target=lambda: samples.extend(_spread(long, streams, streams)))
    asking.start()
    checks.wait(lambda: sum(service.metric(t.port, checks.RUNNING) for t in targets) >= streams, 20)
    done = act()
    asking.join(120)
    return {
        "streams": streams,
        "whole_answers": sum(not sample.error for sample in samples),
        "first_errors": [sample.error[:200] for sample in samples if sample.error][:2],
        **done,
    }
