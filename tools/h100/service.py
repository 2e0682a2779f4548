"""The product's programs as child processes, and what the machine says about them."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from huddle.engine import query
from huddle.launch.processes import MARK

ENVIRONMENT = {
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # flashinfer does not travel with us; vLLM 0.26.0 does not start without it
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",  # the lent machine's rule: no NVLink multicast
    "PYTHONUNBUFFERED": "1",
}
_LOG_FACTS = {
    "kv_tokens": r"GPU KV cache size: ([\d,]+) tokens",
    "weights_gib": r"Model loading took ([\d.]+) GiB",
    "kv_gib": r"Available KV cache memory: ([\d.]+) GiB",
    "graphs_gib": r"Graph capturing finished in \d+ secs, took ([\d.]+) GiB",
    "compile_s": r"torch\.compile took ([\d.]+) s",
    "weights_s": r"Loading weights took ([\d.]+) seconds",
}


@dataclass
class Programs:
    """Where the programs are, and where they write."""

    huddle: Sequence[str]
    vllm: str
    state: Path
    device: str = "cuda"
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, arguments: Sequence[str], env: Mapping[str, str] | None = None) -> "Program":
        """Start `huddle ARGUMENTS`, its output in `NAME.log`."""
        log = self.state / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*self.huddle, *arguments],
                env={**os.environ, **ENVIRONMENT, **(env or {})},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.started.append(process)
        return Program(name, process, log)

    def ask(self, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str, float]:
        """Run `huddle ARGUMENTS` to its end: exit code, what it said, seconds."""
        began = time.monotonic()
        done = subprocess.run(
            [*self.huddle, *arguments],
            env={**os.environ, **ENVIRONMENT, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).strip(), round(time.monotonic() - began, 2)

    def end_all(self) -> None:
        """Nothing stays behind, whatever went wrong."""
        for process in [*marked(self.state), *(psutil.Process(p.pid) for p in self.started if p.poll() is None)]:
            with _gone_is_good():
                process.kill()


@dataclass
class Program:
    """One running program."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)

    def wait_for(self, url: str, timeout_s: float, *, once_said: str = "") -> float:
        """Seconds from the start to the first 200 at `url`; asked only once the log holds a text (an old program may

        still answer there). Raises `RuntimeError` with the log's end.
        """
        while time.monotonic() - self.began < timeout_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with {self.process.returncode}: {self.tail()}")
            try:
                if once_said in self.log.read_text(errors="replace") and httpx.get(url, timeout=5).status_code == 200:
                    return round(time.monotonic() - self.began, 2)
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{self.name} was not ready after {timeout_s} s: {self.tail()}")

    def end(self, timeout_s: float = 60) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def tail(self, size: int = 3000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:]

    def said(self, pattern: str) -> list[str]:
        """What `huddle launch` itself said that matches."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if re.search(pattern, line)]

    def facts(self) -> dict[str, Any]:
        """Figures that vLLM printed while it started (the first of each)."""
        text = self.log.read_text(errors="replace")
        found = {name: re.findall(pattern, text) for name, pattern in _LOG_FACTS.items()}
        return {name: float(values[0].replace(",", "")) for name, values in found.items() if values}


def wrapper_config(path: Path, *, listen: int, upstream: int, model: str, prompt: Path, metrics: int) -> str:
    """Write the configuration of a wrapper as a node's is: a backend key, a system prompt, one product."""
    keys = path.with_suffix(".keys")
    key = "backend-key-of-this-run-only"
    keys.write_text(key + "\n")
    document = {
        "listen": f"127.0.0.1:{listen}",
        "metrics_listen": f"127.0.0.1:{metrics}",
        "upstream": f"http://127.0.0.1:{upstream}",
        "backend_keys_file": str(keys),
        "models": {model: {"system_prompt_file": str(prompt)}},
        "products": {"bench": {"models": [model]}},
    }
    path.write_text(yaml.safe_dump(document))
    return key


def gpu_used_mib() -> list[int]:
    """nvidia-smi's memory.used of every GPU; empty where there is none."""
    try:
        command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        return [
            int(line) for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        ]
    except (OSError, subprocess.CalledProcessError):
        return []


def gpu_facts() -> list[str]:
    """Names, sizes and driver, as nvidia-smi tells them."""
    try:
        command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return []


def marked(state: Path) -> list[psutil.Process]:
    """Every process that a `huddle launch` with its workspace under `state` started."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"@{state}/" in process.environ().get(MARK, "") and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def titles(processes: Sequence[psutil.Process]) -> list[str]:
    """What they call themselves."""
    names = []
    for process in processes:
        with _gone_is_good():
            names.append(f"{process.pid} {' '.join(process.cmdline())[:80] or process.name()}")
    return names


def descendant(program: Program, title: str) -> psutil.Process:
    """The first process below a program whose title holds a word.

    Raises:
        RuntimeError: there is none.
    """
    for process in psutil.Process(program.process.pid).children(recursive=True):
        with _gone_is_good():
            if title in f"{process.name()} {' '.join(process.cmdline())}":
                return process
    raise RuntimeError(f"no {title} below {program.name}")


def metric(port: int, name: str) -> float:
    """The sum of an engine's metric over its labels."""
    return query.sums(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text, [name])[name]


def plan(programs: Programs, model: str, *arguments: str) -> dict[str, Any]:
    """What `huddle plan --json` predicts.

    Raises:
        RuntimeError: the command failed.
    """
    code, said, _ = programs.ask("plan", model, "--json", *arguments)
    if code:
        raise RuntimeError(f"huddle plan: {said}")
    answer: dict[str, Any] = json.loads(said)
    return answer


@contextmanager
def _gone_is_good() -> Iterator[None]:
    with suppress(psutil.NoSuchProcess):
        yield
