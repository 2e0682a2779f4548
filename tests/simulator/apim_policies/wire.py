"""The whole way over real connections: client, gateway in the lab, the real wrapper program, a scriptable engine."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from cloud_init.bundle import prompts
from cloud_init.bundle.wrapper_config import CURRENT, wrapper_config
from plan.azure.model import AzurePlan
from simulator.apim_policies.counters import Algorithm, Counters
from simulator.apim_policies.exchange import Environment
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.pool import Backends
from simulator.apim_policies.server import serving
from simulator.apim_policies.transport import HttpSender
from tests.serving.wrapper.fake_engine import MODEL as ENGINE_MODEL
from tests.serving.wrapper.fake_engine import FakeEngine, fake_engine
from tests.serving.wrapper.kept import handed_over
from tools.deadlines import scaled
from tools.ports import reserve_port

from .lab import BACKEND_KEY, plan, service

HUDDLE = str(Path(sys.executable).with_name("huddle"))


@dataclass
class Wire:
    """`url` is the gateway's, `direct` the wrapper's; `log` are the gateway's log lines."""

    url: str
    direct: str
    engine: FakeEngine
    gateway: Gateway
    wrapper_log: Path
    log: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


def write_node(built: AzurePlan, directory: Path, engine_port: int, port: int, node: int = 0) -> Path:
    """A node's own configuration, as its bundle has it, with its paths and ports on this machine."""
    for prompt in prompts.all_prompts(built):
        (directory / prompt.path).parent.mkdir(parents=True, exist_ok=True)
        (directory / prompt.path).write_bytes(prompt.content)
    config: dict[str, Any] = json.loads(
        json.dumps(wrapper_config(built, built.nodes[node])).replace(CURRENT, str(directory))
    )
    keys = directory / "keys"
    keys.write_text(BACKEND_KEY)
    config |= {
        "listen": f"127.0.0.1:{port}",
        "metrics_listen": None,
        "upstream": f"http://127.0.0.1:{engine_port}",
        "backend_keys_file": str(keys),
    }
    for model in config["models"].values():
        model["upstream_model"] = ENGINE_MODEL
    path = directory / "wrapper.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@asynccontextmanager
async def wire(directory: Path, algorithm: Algorithm = Algorithm.SLIDING_WINDOW, **gateway: Any) -> AsyncIterator[Wire]:
    """Start everything; `gateway` are settings of the stack."""
    built, port = plan(**gateway), reserve_port()
    log = directory / "wrapper.log"
    async with fake_engine() as engine:
        config = write_node(built, directory, engine.port, port)
        process = await started(config, log)
        try:
            direct = f"http://127.0.0.1:{port}"
            await ready(direct, process)
            made = service(algorithm, **gateway)
            addresses = {backend.url: f"{direct}/v1" for backend in made.backends}
            sender = HttpSender(addresses)
            environment = Environment(
                Counters(made.algorithm), Backends(made.backends, made.pools), sender, _clock, asyncio.sleep
            )
            lines: list[str] = []
            front = Gateway(made, environment)
            async with serving(front, log=lines.append) as front_port:
                # The gateway's own name leads back to it, as public DNS does.
                addresses[f"https://{built.gateway.host}"] = f"http://127.0.0.1:{front_port}"
                yield Wire(f"http://127.0.0.1:{front_port}", direct, engine, front, log, lines)
            await sender.close()
        finally:
            process.kill()
            await process.wait()


def _clock() -> float:
    return asyncio.get_running_loop().time() + 1_800_000_000


async def started(config: Path, log: Path, kept: socket.socket | None = None) -> asyncio.subprocess.Process:
    """The wrapper's program, just started. `kept`: the socket that systemd kept for it (sd_listen_fds(3))."""
    argv = [HUDDLE, "wrapper", "--config", str(config)]
    if kept is not None:
        argv = handed_over(argv, kept)
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *argv, stdout=output, stderr=output, env=os.environ, pass_fds=[kept.fileno()] if kept else ()
        )


async def ready(direct: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(scaled(60)), httpx.AsyncClient(timeout=scaled(10)) as http:
        while process.returncode is None:
            try:
                if (await http.get(f"{direct}/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
    raise AssertionError("the wrapper ended before it was ready")
