"""A scriptable engine: each request is answered by a script that may stall, reset, lie about framing or hang up."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httptools

MODEL = "tiny"


@dataclass
class Received:
    """One request as the engine got it."""

    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """What a script writes with; every method is one obvious thing on the wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def json(self, value: Any, status: int = 200, headers: str = "") -> None:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{headers}content-length: {len(body)}\r\n\r\n"
        await self.raw(head.encode() + body)

    async def stream_head(self) -> None:
        await self.raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    def reset(self) -> None:
        """RST, not FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SOL_SOCKET, SO_LINGER
        self.writer.close()

    async def closed_by_peer(self) -> None:
        """Returns when the wrapper has closed the connection."""
        while await self.reader.read(65536):
            pass


Script = Callable[[Received, Reply], Awaitable[None]]


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def token(text: str) -> bytes:
    return event({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}}]})


USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
USAGE_EVENT = event({"id": "x", "object": "chat.completion.chunk", "choices": [], "usage": USAGE})
DONE = b"data: [DONE]\n\n"


def stream_bytes(count: int, *, usage: bool) -> bytes:
    """What an engine sends for `count` tokens."""
    return b"".join(token(f"t{i} ") for i in range(count)) + (USAGE_EVENT if usage else b"") + DONE


async def polite(request: Received, reply: Reply) -> None:
    """Answers as vLLM does: health, models, plain and streamed completions with the usage when asked."""
    if request.path == "/health":
        await reply.json({})
    elif request.path == "/v1/models":
        await reply.json({"object": "list", "data": [{"id": MODEL, "max_model_len": 4096}]})
    elif request.json.get("stream"):
        usage = bool((request.json.get("stream_options") or {}).get("include_usage"))
        await reply.stream_head()
        for chunk in stream_bytes(request.json.get("max_tokens", 5), usage=usage).split(b"\n\n")[:-1]:
            await reply.chunk(chunk + b"\n\n")
        await reply.end()
    else:
        await reply.json({"object": "chat.completion", "choices": [{"message": {"content": "hi"}}], "usage": USAGE})


def saying(value: Any, status: int = 200, headers: str = "") -> Script:
    """Each request gets this JSON."""
    return lambda _, reply: reply.json(value, status, headers)


def sending(data: bytes) -> Script:
    """Each request gets these bytes, head and all."""
    return lambda _, reply: reply.raw(data)


def streaming(*chunks: bytes) -> Script:
    """Each request gets a stream of these chunks."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for chunk in chunks:
            await reply.chunk(chunk)
        await reply.end()

    return script


class FakeEngine:
    def __init__(self) -> None:
        self.script: Script = polite
        self.watched: Script | None = None  # what the wrapper's watch gets, where that is not polite
        self.requests: list[Received] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def completions(self) -> list[Received]:
        return [request for request in self.requests if request.path not in ("/health", "/v1/models")]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        self.open += 1
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                probe = request.path in ("/health", "/v1/models")
                await ((self.watched or polite) if probe else self.script)(request, Reply(reader, writer))
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(asyncio.current_task())
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Received | None:
        request = Received()
        done = False

        class Callbacks:
            def on_url(self, url: bytes) -> None:
                request.path = url.decode()

            def on_header(self, name: bytes, value: bytes) -> None:
                request.headers[name.decode().lower()] = value.decode()

            def on_body(self, body: bytes) -> None:
                request.body += body

            def on_message_complete(self) -> None:
                nonlocal done
                done = True

        parser = httptools.HttpRequestParser(Callbacks())
        while not done:
            data = await reader.read(262144)
            if not data:
                return None
            request.raw += data
            parser.feed_data(data)
        return request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; again where it did before."""
        self._server = await asyncio.start_server(self.handle, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Be gone: the port is closed, and so is every connection, in the middle of its answer."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()


@asynccontextmanager
async def fake_engine() -> AsyncIterator[FakeEngine]:
    engine = FakeEngine()
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
