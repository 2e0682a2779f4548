"""CPU time of a hop for each request and each chunk of an answer: nginx, a bare relay in Python, the wrapper.

    python -m tools.bench.cpu
    python -m tools.bench.cpu --subjects wrapper --connections 32 --repeats 9

Unlike a clock, CPU time does not see what else a busy machine does, so this compares two versions of the code where
`tools.bench.wrapper` cannot. Clients and engine are in this process. The engine writes an event once the client has the
one before, so no two events of a stream come together. A request's cost is that of an answer of one event, the usage
and the end; the difference to an answer of many events is the chunks'. The least of all turns counts.
"""

import argparse
import asyncio
import json
import re
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import httptools
import uvloop

from tools.bench import backend, subjects
from tools.ports import reserve_port

SUBJECTS: Final = ("nginx", "relay", "wrapper")
EVENTS: Final = 40
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\ndate: Sun, 29 Nov 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_LAST: Final = backend.framed(backend.LAST)
_END: Final = backend.framed(backend.USAGE) + backend.framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"
_TOKEN: Final = backend.framed(backend.TOKEN)
_WORD: Final = b'" word"'
_NAME: Final = re.compile(rb"client-(\d+)")
_WORDS: Final = "The river rises in the hills behind the town, and it runs past the old mill to the sea. "


def request(number: int, port: int) -> bytes:
    """A chat request of about 1.7 kB of JSON with the headers that OpenAI's client sends."""
    messages = [
        {"role": "system", "content": f"You help client-{number}. {_WORDS * 3}"},
        {"role": "user", "content": _WORDS * 6},
        {"role": "assistant", "content": _WORDS * 3},
        {"role": "user", "content": f'And what is it called? Say "I do not know" if so.\n{_WORDS * 4}'},
    ]
    fields = {"model": backend.MODEL, "messages": messages, "stream": True, "max_tokens": 256, "temperature": 0.7}
    body = json.dumps(fields)
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept-Encoding: gzip, deflate\r\n"
        "Connection: keep-alive\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        "User-Agent: OpenAI/Python 2.8.1\r\nX-Stainless-Lang: python\r\nX-Stainless-Package-Version: 2.8.1\r\n"
        "X-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\nX-Stainless-Runtime: CPython\r\n"
        "X-Stainless-Runtime-Version: 3.12.3\r\nX-Stainless-Async: false\r\nx-stainless-retry-count: 0\r\n"
        f"x-stainless-read-timeout: 600\r\nAuthorization: Bearer {subjects.KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        f"{body}"
    ).encode()


class Engine(asyncio.Protocol):
    """Answers each request with events, each when its client asks for it."""

    by_client: ClassVar[dict[int, "Engine"]] = {}
    events = 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A hop has connected."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._url = b""

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Called by httptools."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """Called by httptools."""
        self._body += body

    def on_message_complete(self) -> None:
        """A whole request is there."""
        named, self._body = _NAME.search(self._body), b""
        if named is None:
            models = backend.models(32_768)
            self._transport.write(backend.plain(models if self._url == b"/v1/models" else {}))
            return
        self.by_client[int(named[1])] = self
        self._left = self.events
        self._transport.write(_HEAD)
        self.next()

    def next(self) -> None:
        """Send the next event; the last takes the end of the answer along."""
        self._left -= 1
        self._transport.write(_TOKEN if self._left else _LAST + _END)


class Client(asyncio.Protocol):
    """One connection that asks `rounds` times, one after the other."""

    def __init__(self, number: int, port: int, rounds: int) -> None:
        self._number = number
        self._request = request(number, port)
        self._left = rounds
        self._tail = b""
        self.first_s: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def ask(self) -> None:
        """Send the next request."""
        self._left -= 1
        self._seen = 0
        self._begun = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer; each event is followed by the next."""
        seen = data.count(_WORD)
        if seen and not self._seen:
            self.first_s.append(time.perf_counter() - self._begun)
        self._seen += seen
        if self._seen < Engine.events:
            if seen:
                Engine.by_client[self._number].next()
        elif data.endswith(b"0\r\n\r\n"):
            if self._left:
                self.ask()
            else:
                self.done.set_result(None)
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """Closed: an error unless all is done."""
        if not self.done.done():
            self.done.set_exception(ConnectionError("the hop has closed the connection"))


async def load(port: int, connections: int, rounds: int, events: int) -> float:
    """Ask; gives the median of the first bytes (seconds)."""
    Engine.events = events
    loop = asyncio.get_running_loop()
    clients = []
    for number in range(connections):
        _, client = await loop.create_connection(partial(Client, number, port, rounds), "127.0.0.1", port)
        clients.append(client)
    for client in clients:
        client.ask()
    await asyncio.gather(*(client.done for client in clients))
    first = sorted(second for client in clients for second in client.first_s)
    return first[len(first) // 2]


async def measure(name: str, connections: int, requests: int, repeats: int) -> dict[str, Any]:
    """The cost of one subject."""
    loop = asyncio.get_running_loop()
    engine_port = reserve_port()
    server = await loop.create_server(Engine, "127.0.0.1", engine_port, backlog=2048)
    rounds = max(requests // connections, 1)
    counted = rounds * connections
    per_request, per_chunk, first_s = [], [], []
    with tempfile.TemporaryDirectory() as made, subjects.subject(name, engine_port, Path(made), 1) as subject:
        await load(subject.port, connections, max(rounds // 4, 2), 2)  # warm up
        for _ in range(repeats):
            before = cpu_ns(subject.pids)
            first_s.append(await load(subject.port, connections, rounds, 1))
            between = cpu_ns(subject.pids)
            await load(subject.port, connections, max(rounds // 8, 1), 1 + EVENTS)
            after = cpu_ns(subject.pids)
            per_request.append((between - before) / counted / 1000)
            streams = max(rounds // 8, 1) * connections
            per_chunk.append(((after - between) / streams / 1000 - per_request[-1]) / EVENTS)
        rss = subjects.rss_mib(subject.pids)
    server.close()
    return {
        "connections": connections,
        "us_per_request": round(min(per_request), 1),
        "us_per_chunk": round(min(per_chunk), 2),
        "first_byte_ms": round(min(first_s) * 1000, 2),
        "rss_mib": round(rss, 1),
    }


def cpu_ns(pids: tuple[int, ...]) -> int:
    """Nanoseconds of CPU that all threads of processes have used."""
    threads = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in threads)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=list(SUBJECTS))
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--requests", type=int, default=1600, help="in each turn, of all connections together")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    for name in asked.subjects:
        for connections in asked.connections:
            found = uvloop.run(measure(name, connections, asked.requests, asked.repeats))
            print(name.ljust(10), json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
