"""The real engine for tests: vLLM on the CPU with a tiny model, started once for a whole run."""

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from huddle import tiny_model
from tests import leash
from tools import vllm_cpu
from tools.deadlines import scaled
from tools.ports import reserve_port

READY_S = 600  # 50 to 90 s on an idle machine; many times that on a busy one


@dataclass(frozen=True)
class RealEngine:
    """A running vLLM: it serves one model under two names."""

    port: int
    python: Path
    names: tuple[str, ...] = ("tiny", "tiny-alias")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=scaled(30)).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + "{", name + " ")))


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The Python of vLLM's own environment, which is made when it is not there."""
    return vllm_cpu.ensure()


@pytest.fixture(scope="session")
def real_vllm(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEngine]:
    """A vLLM of the pinned version. `HUDDLE_TEST_VLLM_PORT` names one that runs already (for work on these tests)."""
    if port := os.environ.get("HUDDLE_TEST_VLLM_PORT"):
        yield RealEngine(int(port), vllm_python)
        return
    directory = tmp_path_factory.mktemp("vllm")
    model = tiny_model.make(directory / "tiny")
    port = reserve_port()
    engine = RealEngine(port, vllm_python)
    argv = [str(vllm_python.with_name("vllm")), "serve", str(model), "--host", "127.0.0.1", "--port", str(port)]
    argv += ["--served-model-name", *engine.names, "--max-model-len", "2048", "--max-num-seqs", "16"]
    argv += ["--enforce-eager"]  # no compilation: the model is too small to be worth it
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
    }
    log = directory / "vllm.log"
    with log.open("w") as output, leash.group(argv, env=environment, stdout=output, stderr=output) as process:
        _wait_until_ready(engine, process, log)
        yield engine


def _wait_until_ready(engine: RealEngine, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + scaled(READY_S)
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{engine.url}/health", timeout=scaled(5)).status_code == 200:
                # The shortest request, first of all, ended the worker on machines with AMX (tools/vllm_cpu.py).
                shortest = {"model": engine.names[0], "prompt": "a", "max_tokens": 1}
                httpx.post(f"{engine.url}/v1/completions", json=shortest, timeout=scaled(120)).raise_for_status()
                return
        time.sleep(0.5)
    raise RuntimeError(f"vLLM did not become ready: {log.read_text()[-3000:]}")
