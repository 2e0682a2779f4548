"""The client's world: a scriptable engine, the real wrapper as a process before it, and the command line."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from huddle.wrapper.access.auth import new_key
from tests import leash
from tests.serving.wrapper.fake_engine import MODEL, FakeEngine, polite
from tools.deadlines import scaled, until

HUDDLE = [sys.executable, "-c", "from huddle.cli import main; main()"]
ALIAS = f"{MODEL}-alias"  # a second name, without a prompt
PROMPT = "You are Huddle. Answer briefly."
VARIABLES = ("OPENAI_", "HUDDLE_", "PULUMI_", "XDG_")


def clean_environment(home: Path) -> dict[str, str]:
    """Nothing of this machine's own settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    return kept | {"HOME": str(home)}


@dataclass
class Endpoint:
    """A running wrapper with a key, and the engine behind it."""

    engine: FakeEngine
    port: int
    key: str
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Any]:
        """What the engine was asked."""
        return [request.json for request in self.engine.completions]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """One engine and one wrapper for all tests."""
    directory = tmp_path_factory.mktemp("endpoint")
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    engine = FakeEngine()
    start = asyncio.start_server(engine.handle, "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(start, loop).result(scaled(60))
    engine.port = server.sockets[0].getsockname()[1]
    key, digest = new_key()
    (directory / "prompt.txt").write_text(PROMPT)
    config = {
        "listen": "127.0.0.1:0",
        "metrics_listen": None,
        "upstream": f"http://127.0.0.1:{engine.port}",
        "models": {MODEL: {"system_prompt_file": str(directory / "prompt.txt")}, ALIAS: {"upstream_model": MODEL}},
        "products": {"test": {"keys": [{"name": "tester", "sha256": digest}]}},
    }
    (directory / "wrapper.yaml").write_text(yaml.safe_dump(config))
    log = directory / "log"
    line = [*HUDDLE, "wrapper", "--config", str(directory / "wrapper.yaml")]
    try:
        with (
            log.open("w") as output,
            leash.group(line, stdout=output, stderr=output, env=clean_environment(directory)) as process,
        ):
            until(lambda: '"listening"' in log.read_text() or process.poll() is not None, "the wrapper listens")
            listening = next(line for line in log.read_text().splitlines() if '"listening"' in line)
            port = int(yaml.safe_load(listening)["listen"].rpartition(":")[2])
            until(
                lambda: httpx.get(f"http://127.0.0.1:{port}/ready", timeout=scaled(10)).status_code == 200,
                "the wrapper is ready",
            )
            yield Endpoint(engine, port, key, log)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(scaled(60))


@pytest.fixture
def endpoint(served: Endpoint) -> Iterator[Endpoint]:
    """The endpoint with a polite engine that has not been asked anything."""
    served.engine.script = polite
    served.engine.requests.clear()
    yield served
    served.engine.script = polite


@dataclass
class Shell:
    """A directory and an environment to run `huddle` in."""

    directory: Path
    env: dict[str, str]

    def start(self, *words: str, **streams: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen([*HUDDLE, *words], cwd=self.directory, env=self.env, text=True, **streams)

    def run(self, *words: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*HUDDLE, *words],
            cwd=self.directory,
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )

    def refused(self, *words: str, text: str = "") -> str:
        """The one sentence of a command that must be refused, after which nothing new is there."""
        before = set(self.directory.rglob("*"))
        done = self.run(*words, text=text)
        assert done.returncode == 2, done
        assert done.stdout == ""
        assert set(self.directory.rglob("*")) == before
        (sentence,) = done.stderr.splitlines()
        return sentence


@pytest.fixture
def bare(tmp_path: Path) -> Shell:
    """A shell that knows no endpoint."""
    directory = tmp_path / "shell"
    directory.mkdir()
    return Shell(directory, clean_environment(tmp_path))


@pytest.fixture
def shell(bare: Shell, endpoint: Endpoint) -> Shell:
    """A shell whose environment names the endpoint."""
    bare.env |= {"OPENAI_BASE_URL": endpoint.url, "OPENAI_API_KEY": endpoint.key}
    return bare


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
