"""A wrapper in the test's own event loop, in front of a scriptable engine."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.service import WrapperService
from tools.deadlines import scaled

from .fake_engine import MODEL, FakeEngine, fake_engine

BACKEND_KEY = "backend-key-0123456789abcdef"
PROMPT = "You are Huddle. Answer briefly."


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return ("asyncio", {"use_uvloop": True})


class BookedFaults(WrapperService):
    """Any fault of the wrapper's own is a failed test."""

    def fault(self, error: Exception, request_id: str) -> None:
        super().fault(error, request_id)
        self.faults.append(error)


@dataclass
class Wrapper:
    service: BookedFaults
    engine: FakeEngine
    port: int
    log: io.BytesIO
    http: httpx.AsyncClient

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes, *, timeout: float = 5) -> bytes:
        """Send bytes and read until the wrapper closes."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            async with asyncio.timeout(scaled(timeout)):
                return await reader.read()
        finally:
            writer.close()

    def client(self, key: str) -> httpx.AsyncClient:
        """Somebody who comes with a key of a product, not through the gateway."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=scaled(10))

    async def chat(self, **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", {})
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], **fields}
        return await self.http.post("/v1/chat/completions", json=body, headers=headers)

    def log_lines(self) -> list[dict[str, Any]]:
        self.service.book()
        self.service.log.close()
        return [json.loads(line) for line in self.log.getvalue().splitlines()]

    def request_lines(self) -> list[dict[str, Any]]:
        """The lines of requests that have ended; the engine's probe may write between them."""
        return [line for line in self.log_lines() if line["event"] == "request"]

    def metrics(self) -> str:
        self.service.book()
        return self.service.metrics.render().decode()

    async def until(self, condition: Callable[[], bool], seconds: float = 5) -> None:
        """Wait for a condition; a test fails when it does not come true."""
        async with asyncio.timeout(scaled(seconds)):
            while not condition():
                await asyncio.sleep(0.01)


MakeWrapper = Callable[..., Any]


@asynccontextmanager
async def wrappers(tmp_path: Path, connection: type[ClientConnection] = ClientConnection) -> AsyncIterator[MakeWrapper]:
    """Start wrappers with changes to a small configuration; `config` merges one level deep."""
    stack = AsyncExitStack()
    services: list[BookedFaults] = []

    async def make(engine: FakeEngine | None = None, prompt: str | None = PROMPT, **config: Any) -> Wrapper:
        engine = engine or await stack.enter_async_context(fake_engine())
        keys = tmp_path / "keys"
        keys.write_text(BACKEND_KEY + "\n")
        model: dict[str, Any] = {}
        if prompt is not None:
            (tmp_path / "prompt.txt").write_text(prompt)
            model = {"system_prompt_file": tmp_path / "prompt.txt", "prompt_id": "test-prompt"}
        settings = {
            "listen": "127.0.0.1:0",
            "upstream": f"http://127.0.0.1:{engine.port}",
            "backend_keys_file": keys,
            "models": {MODEL: model},
            **config,
        }
        log, metrics = io.BytesIO(), Metrics()
        runtime = runtimes.build(WrapperConfig.model_validate(settings), b"salt secret of the tests")
        service = BookedFaults(runtime, LogWriter(log), metrics)
        service.faults = []
        services.append(service)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: connection(service), "127.0.0.1", 0)
        stack.callback(server.close)
        stack.callback(service.abort_all)
        service.background.keep("tick", service.tick)
        for engine_watched in service.engines.all:
            service.background.keep("probe", engine_watched.probe.run)
        stack.callback(service.background.close)
        port = server.sockets[0].getsockname()[1]
        http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", headers={"x-backend-key": BACKEND_KEY}, timeout=scaled(10)
        )
        await stack.enter_async_context(http)
        return Wrapper(service, engine, port, log, http)

    async with stack:
        yield make
    assert [fault for service in services for fault in service.faults] == []


@pytest.fixture
async def make_wrapper(tmp_path: Path) -> AsyncIterator[MakeWrapper]:
    async with wrappers(tmp_path) as make:
        yield make


@pytest.fixture
async def wrapper(make_wrapper: MakeWrapper) -> Wrapper:
    return await make_wrapper()
