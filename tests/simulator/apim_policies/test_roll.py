"""Two nodes take another bundle and another backend key in turns, while clients stream through the gateway."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from huddle.wrapper import server
from plan.azure.gateway_model import BREAKER_REST_S
from simulator.apim_policies.counters import Counters
from simulator.apim_policies.exchange import Environment
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.gateway_config import GatewayConfig
from simulator.apim_policies.pool import Backends
from simulator.apim_policies.server import serving
from simulator.apim_policies.transport import HttpSender
from tests.serving.wrapper.fake_engine import DONE, FakeEngine, Received, Reply, fake_engine, token
from tests.simulator.apim_policies.lab import BACKEND_KEY, OTHER_KEY, START, plan, service
from tests.simulator.apim_policies.wire import ready, started, write_node
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio
HEADERS = {"Ocp-Apim-Subscription-Key": OTHER_KEY}
NEW_KEY = "another-backend-key-0123456789ab"
CLIENTS, TOKENS, PACE_S = 8, 12, 0.03
FASTER = 20
"""The gateway's time beside ours, so that nobody waits half a minute for its circuit breaker."""


@dataclass
class Node:
    """A wrapper that can be stopped and started, before an engine of its own. Its socket is kept, as by systemd."""

    engine: FakeEngine
    config: Path
    kept: socket.socket
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.kept.getsockname()[1]}"

    async def apply(self, *keys: str) -> None:
        """As `huddle-apply`: the wrapper drains and ends, starts with other keys, answers, and waits."""
        self.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self.process.wait(), scaled(60)) == 0
        (self.config.parent / "keys").write_text("\n".join(keys))
        self.process = await started(self.config, self.config.with_suffix(".log"), self.kept)
        await ready(self.url, self.process)
        await asyncio.sleep(BREAKER_REST_S / FASTER)


async def _paced(_: Received, reply: Reply) -> None:
    await reply.stream_head()
    for number in range(TOKENS):
        await reply.chunk(token(f"t{number} "))
        await asyncio.sleep(PACE_S)
    await reply.chunk(DONE)
    await reply.end()


@asynccontextmanager
async def _node(directory: Path, number: int) -> AsyncIterator[Node]:
    directory.mkdir()
    async with fake_engine() as engine:
        engine.script = _paced
        with server.listen("127.0.0.1:0", shared=False) as kept:
            config = write_node(plan(), directory, engine.port, kept.getsockname()[1], number)
            node = Node(engine, config, kept, await started(config, config.with_suffix(".log"), kept))
            try:
                await ready(node.url, node.process)
                yield node
            finally:
                node.process.kill()
                await node.process.wait()


@asynccontextmanager
async def _gateway(made: GatewayConfig, nodes: list[Node]) -> AsyncIterator[str]:
    sender = HttpSender({backend.url: f"{node.url}/v1" for backend, node in zip(made.backends, nodes, strict=True)})

    def clock() -> float:
        return START + asyncio.get_running_loop().time() * FASTER

    environment = Environment(
        Counters(made.algorithm), Backends(made.backends, made.pools), sender, clock, asyncio.sleep
    )
    async with serving(Gateway(made, environment)) as port:
        yield f"http://127.0.0.1:{port}"
    await sender.close()


class Clients:
    """Clients that ask one stream after another until they are told to stop."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.url = ""
        self._stop = False

    async def run(self) -> None:
        async with httpx.AsyncClient(headers=HEADERS, timeout=scaled(60)) as http, asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(self._one(http))

    async def _one(self, http: httpx.AsyncClient) -> None:
        asked = {"model": "hl", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        while not self._stop:
            try:
                async with http.stream("POST", f"{self.url}/v1/chat/completions", json=asked) as answer:
                    body = await answer.aread()
                whole = answer.status_code == 200 and body.count(b"data: ") == TOKENS + 1 and body.endswith(DONE)
                self.seen["whole" if whole else f"{answer.status_code} {body[-120:]!r}"] += 1
            except httpx.HTTPError as error:
                self.seen[f"{type(error).__name__}: {error}"] += 1

    def stop(self) -> None:
        self._stop = True


async def test_no_stream_breaks_and_nobody_is_refused_while_nodes_take_turns(tmp_path: Path) -> None:
    made, clients = service(), Clients()
    other = replace(
        made,
        named_values={name: NEW_KEY if value == BACKEND_KEY else value for name, value in made.named_values.items()},
    )
    assert other != made, "the gateway holds the key as a named value"
    async with _node(tmp_path / "one", 0) as one, _node(tmp_path / "two", 1) as two:
        nodes = [one, two]
        async with _gateway(made, nodes) as before, _gateway(other, nodes) as after:
            clients.url = before
            running = asyncio.create_task(clients.run())
            for node in nodes:
                await node.apply(NEW_KEY, BACKEND_KEY)
                assert clients.seen["whole"] > CLIENTS
            asked = [len(node.engine.completions) for node in nodes]
            clients.url = after  # the named value has changed
            done = clients.seen["whole"]
            async with asyncio.timeout(scaled(60)):
                while clients.seen["whole"] < done + 5 * CLIENTS:
                    await asyncio.sleep(0.05)
            clients.stop()
            await running
    assert set(clients.seen) == {"whole"}, clients.seen
    assert all(len(node.engine.completions) > before for node, before in zip(nodes, asked, strict=True)), "both serve"
