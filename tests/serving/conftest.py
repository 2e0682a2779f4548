"""The real engine for tests: vLLM on the CPU with a tiny model, started once for a whole run."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from huddle import versions
from huddle.engine import query
from huddle.local import service
from huddle.local.files import HUDDLE, LocalPaths
from tests import leash
from tools.deadlines import scaled
from tools.venvs import vllm_cpu

READY_S = 600  # 50 to 90 s on an idle machine
NAMES = ("tiny", "tiny-alias")


@dataclass(frozen=True)
class RealEngine:
    """A running vLLM: it serves one model under two names."""

    port: int
    python: Path
    names: tuple[str, ...] = NAMES

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        return query.sums(httpx.get(f"{self.url}/metrics", timeout=scaled(30)).text, [name])[name]


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(version, marks=() if version == versions.load().engine.vllm else pytest.mark.lab)
        for version in versions.load().cpu_engines
    ],
)
def engine_version(request: pytest.FixtureRequest) -> str:
    """Each engine of the table: that of the nodes in `make test`, the others in `make engines-lab`."""
    return str(request.param)


@pytest.fixture(scope="session")
def vllm_python(engine_version: str) -> Path:
    """The Python of a vLLM's own environment, which is made when it is not there."""
    return vllm_cpu.ensure(engine_version)


@dataclass(frozen=True)
class LocalService:
    """What `make local` runs, with the real vLLM: `huddle` is its command line, `paths` its files."""

    paths: LocalPaths
    engine: RealEngine
    environment: Mapping[str, str]

    def huddle(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run `huddle` as somebody who has changed into its directory."""
        return subprocess.run(
            [*HUDDLE, *words], cwd=self.paths.root.parent, env=self.environment, capture_output=True, text=True,
            timeout=scaled(READY_S), check=False,
        )  # fmt: skip


@pytest.fixture(scope="session")
def local_service(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    """One real engine for the whole run, started as a person starts it. It serves its model under a second name too."""
    directory = tmp_path_factory.mktemp("local")
    program = directory / "vllm"
    program.write_text(
        f"""#!/bin/sh\n[ "$1" != serve ] || set -- "$@" --served-model-name {" ".join(NAMES)}\n"""
        f"""exec {vllm_python.with_name("vllm")} "$@"\n"""
    )
    program.chmod(0o755)
    # Bound to the machine's cores, as vLLM does it for a CPU, its threads leave none to the one that sends: on a busy
    # machine its first token came with its last, and nobody could leave between the two.
    unbound = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **unbound, "HUDDLE_VLLM": str(program)}
    paths = LocalPaths(directory / ".local")
    stop = [*HUDDLE, "local", "stop"]
    with leash.when_killed(*stop, cwd=directory, env=environment):
        try:
            start = [*HUDDLE, "local", "start", "--device", "cpu", "--timeout", str(int(scaled(READY_S)))]
            done = subprocess.run(start, cwd=directory, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr + service.tails(paths)
            upstream = yaml.safe_load(paths.wrapper.read_text())["upstream"]
            yield LocalService(paths, RealEngine(int(upstream.rpartition(":")[2]), vllm_python), environment)
        finally:
            service.stop(paths)


@pytest.fixture(scope="session")
def real_vllm(request: pytest.FixtureRequest, vllm_python: Path) -> RealEngine:
    """A running vLLM. `HUDDLE_TEST_VLLM_PORT` names one that runs already (for work on these tests)."""
    if port := os.environ.get("HUDDLE_TEST_VLLM_PORT"):
        return RealEngine(int(port), vllm_python)
    local: LocalService = request.getfixturevalue("local_service")
    return local.engine
