"""One phase of a measurement: its programs, its files, and its notes."""

import argparse
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huddle import gpus
from huddle.headers import BACKEND_KEY_HEADER, PRODUCT_HEADER, TENANT_HEADER
from tools.h100 import checks, load, service
from tools.h100.load import Load, Target
from tools.h100.service import Program, Programs

MODEL, DIRECTORY = "llama-3.2-3b", "Llama-3.2-3B-Instruct"
SECOND, SECOND_DIRECTORY = "qwen2.5-7b", "Qwen2.5-7B-Instruct"  # not among the models that the planner was fitted on
THIRD, THIRD_DIRECTORY = "llama-3.1-8b", "Llama-3.1-8B-Instruct"
ENGINE, WRAPPER, METRICS, OTHER = 5005, 8000, 9400, 5105
_READY_S = 300


class Notes:
    """Figures by step, on disk after every step."""

    def __init__(self, path: Path) -> None:
        self.path, self.values = path, dict[str, Any]()
        self._began = time.monotonic()

    def step(self, name: str, run: Callable[[], Any]) -> Any:
        """Run a step and write down what it gives, or how it failed."""
        began = time.monotonic()
        try:
            result = run()
        except Exception as error:  # the machine is lent for minutes: go on with the next step
            result = {"failed": f"{type(error).__name__}: {error}"[-3000:]}
            traceback.print_exc(limit=3)
        self.values[name] = result
        self.path.write_text(json.dumps(self.values, indent=1, ensure_ascii=False) + "\n")
        took, at = time.monotonic() - began, time.monotonic() - self._began
        print(f"[{at:6.1f} s] {name} ({took:.1f} s): {json.dumps(result)[:600]}", flush=True)
        return result


class Bench:
    """One phase: its programs, its files, its notes."""

    def __init__(self, phase: str, asked: argparse.Namespace) -> None:
        self.phase, self.small = phase, asked.device == "cpu"
        self.state: Path = asked.state
        self.notes = Notes(asked.out / f"{phase}.json")
        self.programs = Programs(asked.huddle, asked.vllm, self.state, asked.device)
        self.load = Load(2 if self.small else 8)
        self.model = "tiny" if self.small else MODEL
        self.store = self.state / "store"
        self.prompt = self.store / ("tiny" if self.small else DIRECTORY) / "system_prompt.txt"
        self.wrapper: Program | None = None
        self.key = ""
        known = gpus.gpu_by_smi_name(asked.gpus[0].partition(",")[0]) if asked.gpus else None
        self.gpu = known.name if known else "h100-sxm"

    def workspace(self, name: str) -> Path:
        """A directory for caches."""
        path = self.state / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def words(
        self, model: str, *more: str, port: int | None = ENGINE, workspace: str = "workspace", made: bool = False
    ) -> list[str]:
        """`launch ...` as it is started; `port` None: the program's own; `made`: the entry is this run's own."""
        words = ["launch", model, "--store", str(self.store), "--workspace", str(self.workspace(workspace))]
        words += ["--vllm", self.programs.vllm, *(["--port", str(port)] if port else [])]
        if self.small:
            words += ["--device", "cpu"]
        if made or self.small or model in {SECOND, THIRD}:
            words += ["--registry", str(self.state / "models.yaml")]
        return [*words, *more]

    def target(self, *, direct: bool) -> Target:
        """The engine's port, or the wrapper's with the gateway's headers."""
        tokens, letters = (16, 60) if self.small else (128, load.PROMPT_LETTERS)
        if direct:
            return Target(ENGINE, self.model, (), tokens, letters)
        headers = ((BACKEND_KEY_HEADER, self.key), (PRODUCT_HEADER, "bench"), (TENANT_HEADER, "alice"))
        return Target(WRAPPER, self.model, headers, tokens, letters)

    def start_wrapper(self, upstream: int = ENGINE, listen: int = WRAPPER) -> float:
        """The wrapper in front of the engine; seconds until it is ready."""
        file = self.state / f"wrapper-{listen}.yaml"
        metrics = METRICS + listen - WRAPPER
        self.key = service.wrapper_config(
            file, listen=listen, upstream=upstream, model=self.model, prompt=self.prompt, metrics=metrics
        )
        self.wrapper = self.programs.start(f"wrapper-{listen}", ["wrapper", "--config", str(file)])
        return self.wrapper.wait_for(f"http://127.0.0.1:{listen}/ready", 30)

    def started(self, program: Program, port: int, gpus: list[int], *plan: str) -> dict[str, Any]:
        """Time to ready, and memory beside its prediction."""
        ready = program.wait_for(f"http://127.0.0.1:{port}/health", _READY_S, once_said="huddle launch: started pid")
        used = service.gpu_used_mib()
        predicted = {} if self.small else service.plan(self.programs, *plan)
        return {
            "ready_s": ready,
            "predicted_start_s": predicted.get("start"),
            "gpu_mib_ready": [used[gpu] for gpu in gpus if gpu < len(used)],
            "vllm": program.facts(),
            "predicted_memory": predicted.get("memory"),
            "predicted_speed": predicted.get("speed"),
            "said": program.said("huddle launch:")[:6],
        }

    def relay(self) -> dict[str, Any]:
        """Through a second wrapper whose engine is a tap."""
        tap = checks.Tap(ENGINE)
        first = self.wrapper
        self.start_wrapper(tap.port, WRAPPER + 1)
        second, self.wrapper = self.wrapper, first
        target = self.target(direct=False)
        try:
            return checks.relay(tap, Target(WRAPPER + 1, target.model, target.headers, 64, 60), ENGINE)
        finally:
            if second:
                second.end()

    def compare(self, streams: int, requests: int) -> dict[str, Any]:
        """The engine directly, and through the wrapper."""
        return checks.compare(self.target(direct=True), self.target(direct=False), streams, requests, self.load)
