"""Run `huddle launch` and `huddle wrapper` with real vLLM on this machine's GPUs, and write down what happened.

    python -m tools.h100.measure one tp ray --state DIR --out DIR

Every step's figures go to OUT/PHASE.json at once; a step that fails is written down, and the next one runs.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from huddle import registry, tiny_model
from tools.h100 import checks, copies, model_files, service, tuning
from tools.h100.bench import (
    DIRECTORY,
    ENGINE,
    MODEL,
    OTHER,
    SECOND,
    SECOND_DIRECTORY,
    THIRD,
    THIRD_DIRECTORY,
    WRAPPER,
    Bench,
)
from tools.h100.service import Program


def one(bench: Bench, count: int) -> None:
    """One GPU: the shipped entry, its wrapper, a refused second launch, deaths, a drain; a second model beside it."""
    note, small = bench.notes.step, bench.small
    first_gpu = {"CUDA_VISIBLE_DEVICES": "0"}
    two = count > 1 or small
    words = bench.words(bench.model)
    first = bench.programs.start("engine", words, first_gpu)
    other = None
    if count > 1:
        arguments = bench.words(SECOND, port=OTHER, workspace="workspace-2")
        other = bench.programs.start("engine-2", arguments, {"CUDA_VISIBLE_DEVICES": "1"})
    begun = note("start", lambda: bench.started(first, ENGINE, [0], bench.model, "--gpu", bench.gpu))
    if "failed" in begun:
        return
    if other:
        note("start_second_model", lambda: bench.started(other, OTHER, [1], SECOND, "--gpu", bench.gpu))
    note("wrapper_ready_s", bench.start_wrapper)
    note("routes", lambda: checks.routes(bench.target(direct=False)))
    note("relay", bench.relay)
    levels = ((1, 4), (4, 8)) if small else ((1, 8), (64, 512), (256, 1024))
    for streams, requests in levels:
        bench.load.run(bench.target(direct=False), streams, streams)  # warm
        note(f"load_{streams}", lambda s=streams, r=requests: bench.compare(s, r))  # type: ignore[misc]
    note("gpu_mib_after_load", service.gpu_used_mib)
    for streams in (1, 1, 1) if small else (1, 1, 1, 64):
        name = f"leave_{streams}_{len(bench.notes.values)}"
        note(name, lambda s=streams: checks.leave(bench.target(direct=False), ENGINE, s))  # type: ignore[misc]
    note("same_port", lambda: checks.refusal(bench.programs, *words, env=first_gpu))
    elsewhere = bench.words(bench.model, port=5205, workspace="workspace-3")
    if not small:
        note("no_memory", lambda: checks.refusal(bench.programs, *elsewhere, env=first_gpu))
    if other:
        note("kill_engine_core", lambda: checks.kill_engine_core(other, OTHER))
        note("after_kill_engine_core", service.gpu_used_mib)
    note("kill_launcher", lambda: _kill_launcher(first))
    note("leftovers", lambda: checks.refusal(bench.programs, *words, env=first_gpu))
    again = bench.programs.start("engine-again", [*words, "--clear-leftovers"], first_gpu)
    note("start_again", lambda: bench.started(again, ENGINE, [0], bench.model, "--gpu", bench.gpu))
    note("wrapper_ready_again_s", lambda: checks.until_ready(WRAPPER))
    if not two:
        note("kill_engine_core", lambda: checks.kill_engine_core(again, ENGINE))
        return
    tokens = 64 if small else 1000
    streams = 4 if small else 32
    note("drain", lambda: checks.drain(again, bench.target(direct=False), ENGINE, streams, tokens))


def short(bench: Bench, _count: int) -> None:
    """The first phase's figures in three minutes: start, memory, load, a client that leaves, a drain."""
    note = bench.notes.step
    engine = bench.programs.start("engine-short", bench.words(bench.model))
    begun = note("start", lambda: bench.started(engine, ENGINE, [0], bench.model, "--gpu", bench.gpu))
    if "failed" in begun:
        return
    note("wrapper_ready_s", bench.start_wrapper)
    note("relay", bench.relay)
    for streams, requests in ((1, 4), (4, 8)) if bench.small else ((64, 384), (256, 768)):
        bench.load.run(bench.target(direct=False), streams, streams)  # warm
        note(f"load_{streams}", lambda s=streams, r=requests: bench.compare(s, r))  # type: ignore[misc]
    note("gpu_mib_after_load", service.gpu_used_mib)
    note("leave", lambda: checks.leave(bench.target(direct=False), ENGINE, 1))
    note("drain", lambda: checks.drain(engine, bench.target(direct=False), ENGINE, 32, 1000))


def _kill_launcher(program: Program) -> dict[str, Any]:
    """SIGKILL to `huddle launch` itself: its engine stays behind."""
    program.process.kill()
    program.process.wait(10)
    time.sleep(1)
    return {"left": service.titles(service.marked(program.log.parent)), "gpu_mib": service.gpu_used_mib()}


def drains(bench: Bench, count: int) -> None:
    """A stop under load with one API server, where vLLM drains, and with four, where the launcher does."""
    fronts = {1: ENGINE, 4: OTHER} if count > 1 else {4: ENGINE}
    engines: dict[int, Program] = {}
    for number, port in fronts.items():
        words = bench.words(bench.model, "--api-server-count", str(number), port=port, workspace=f"workspace-{number}")
        gpu = {"CUDA_VISIBLE_DEVICES": str(len(engines))} if count > 1 else {}
        engines[number] = bench.programs.start(f"engine-{number}-front-ends", words, gpu)
    for number, port in fronts.items():
        _drain_one(bench, number, engines[number], port)
        if bench.wrapper:
            bench.wrapper.end()


def _drain_one(bench: Bench, number: int, engine: Program, port: int) -> None:
    note, streams, tokens = bench.notes.step, 4 if bench.small else 32, 64 if bench.small else 1000
    note(f"start_{number}", lambda: bench.started(engine, port, [], bench.model, "--gpu", bench.gpu))
    note(f"wrapper_ready_s_{number}", lambda: bench.start_wrapper(port))
    note(f"drain_{number}", lambda: checks.drain(engine, bench.target(direct=False), port, streams, tokens))


def tp(bench: Bench, count: int) -> None:
    """Two GPUs, tensor parallel over vLLM's own processes."""
    _parallel(bench, count, bench.words(bench.model, "--tp", "2", workspace="workspace-tp"), {})


def ray(bench: Bench, count: int) -> None:
    """The same over a Ray cluster of one node, as the node's unit starts it."""
    begin = ["ray", "start", "--head", "--node-ip-address=127.0.0.1", "--port=6379", "--include-dashboard=false"]
    environment = {**os.environ, **service.ENVIRONMENT, "VLLM_HOST_IP": "127.0.0.1", "RAY_USAGE_STATS_ENABLED": "0"}
    program = Path(sys.executable).with_name("ray")
    begin[0] = str(program)
    began = time.monotonic()
    started = subprocess.run([*begin, "--num-cpus=16"], env=environment, capture_output=True, text=True, check=False)
    bench.notes.step(
        "ray_start",
        lambda: {"code": started.returncode, "seconds": time.monotonic() - began, "said": started.stdout[-300:]},
    )
    try:
        words = bench.words(bench.model, "--tp", "2", "--executor", "ray", workspace="workspace-ray")
        _parallel(bench, count, [*words, "--node-ip", "127.0.0.1"], {})
    finally:
        subprocess.run([program, "stop", "--force"], env=environment, capture_output=True, check=False)


def _parallel(bench: Bench, count: int, words: list[str], env: dict[str, str]) -> None:
    note = bench.notes.step
    if count < 2:
        note("start", lambda: {"failed": f"{count} GPU"})
        return
    engine = bench.programs.start(f"engine-{bench.phase}", words, env)
    plan = (bench.model, "--gpu", bench.gpu, "--gpus", "2", "--tp", "2")
    begun = note("start", lambda: bench.started(engine, ENGINE, [0, 1], *plan))
    if "failed" in begun:
        return
    note("wrapper_ready_s", bench.start_wrapper)
    bench.load.run(bench.target(direct=False), 64, 64)
    note("load_1", lambda: bench.compare(1, 6))
    note("load_64", lambda: bench.compare(64, 384))
    if bench.phase == "tp":
        note("load_256", lambda: bench.compare(256, 1024))
    note("gpu_mib_after_load", service.gpu_used_mib)
    note("leave", lambda: checks.leave(bench.target(direct=False), ENGINE, 1))
    note("drain", lambda: checks.drain(engine, bench.target(direct=False), ENGINE, 32, 1000))


PHASES = {
    "short": short,
    "one": one,
    "drains": drains,
    "tp": tp,
    "ray": ray,
    "copies": copies.small,
    "copies-7b": copies.larger,
    "tune": tuning.tune,
    "tuned": tuning.tuned,
}


def prepare(state: Path, device: str) -> None:
    """Model files and the registry of the second model, once: `huddle tune` writes into it."""
    store = state / "store"
    if (state / "models.yaml").exists():
        return
    if device == "cpu":
        directory = tiny_model.make(store / "tiny")
        (directory / "system_prompt.txt").write_text("You are a tiny model.\n")
        entry = {
            "model": "huddle/tiny",
            "description": "random weights",
            "max-model-len": 4096,
            "env": {"OMP_NUM_THREADS": "1"},
            "extra-args": ["--enforce-eager"],
        }
        entries = {"tiny": entry, copies.together("tiny"): copies.over_two_gpus(entry)}
        (state / "models.yaml").write_text(yaml.safe_dump({"models": entries}))
        return
    if not (store / DIRECTORY / "model.safetensors.index.json").exists():
        model_files.write(store, DIRECTORY, weights=True)
        model_files.write(store, SECOND_DIRECTORY, weights=False)
        model_files.write(store, THIRD_DIRECTORY, weights=False)
    document = yaml.safe_load(registry.loader.DEFAULT_PATH.read_text())
    entries = {}
    for name in (MODEL, SECOND, THIRD):
        entry = document["models"][name]
        entry["extra-args"] = [*entry.get("extra-args", []), "--load-format", "dummy"]
        entries |= {name: entry, copies.together(name): copies.over_two_gpus(entry)}
    (state / "models.yaml").write_text(yaml.safe_dump({"models": entries}))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="*", choices=[*PHASES, []], help="none: only make the model files")
    parser.add_argument("--state", type=Path, required=True, help="models, caches, logs")
    parser.add_argument("--out", type=Path, required=True, help="where the JSON goes")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run with a tiny model")
    parser.add_argument("--huddle", nargs="+", default=[str(Path(sys.executable).with_name("huddle"))])
    parser.add_argument("--vllm", default=str(Path(sys.executable).with_name("vllm")))
    asked = parser.parse_args()
    asked.state = asked.state.resolve()
    asked.state.mkdir(parents=True, exist_ok=True)
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.phases:  # a process of its own, so that this one holds no GPU memory
        files = [sys.executable, "-m", __spec__.name, "--state", str(asked.state), "--out", str(asked.out)]
        subprocess.run([*files, "--device", asked.device], check=True)
    else:
        prepare(asked.state, asked.device)
    asked.gpus = service.gpu_facts()
    for phase in asked.phases:
        bench = Bench(phase, asked)
        machine = {"gpus": asked.gpus, "cores": psutil.cpu_count(), "python": sys.version.split()[0]}
        bench.notes.step("machine", lambda found=machine: found)  # type: ignore[misc]
        try:
            PHASES[phase](bench, len(asked.gpus))
        finally:
            if bench.wrapper and bench.wrapper.process.poll() is None:
                bench.wrapper.process.send_signal(signal.SIGTERM)
            bench.programs.end_all()
            bench.notes.step("gpu_mib_at_the_end", checks.memory_back)
            for log in asked.state.glob("*.log"):
                shutil.copy(log, asked.state / f"{phase}-{log.stem}.txt")


if __name__ == "__main__":
    main()
