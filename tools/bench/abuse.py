"""Measure what a hostile caller can do to others: how long their streams stand still, what they are told, memory.

    python -m tools.bench.abuse                     # every abuse, a table and JSON on stdout
    python -m tools.bench.abuse --only wide crowd   # some of them

The abuser has a key and an address of its own; the bystanders have another key. `still` is CPU time (see
watched_wrapper.py), the other times are the clock's: on a busy machine compare them with those of `quiet`.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from tools.bench import subjects
from tools.ports import reserve_port

HERE = Path(__file__).parent
ABUSER, GATEWAY = "127.0.0.2", "127.0.0.1"
KEYS = {"abuser": subjects.ABUSER_KEY, "bystander": subjects.KEY}


class Abuser:
    """A hostile client of the wrapper on `port`: makes requests and connections."""

    def __init__(self, port: int) -> None:
        self.port = port

    def head(self, length: int | None, path: str = "/v1/chat/completions") -> bytes:
        """A request's head; `length` None for chunks."""
        framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        return (
            f"POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {KEYS['abuser']}\r\n"
            f"content-type: application/json\r\n{framing}\r\n\r\n"
        ).encode()

    def whole(self, body: bytes, path: str = "/v1/chat/completions") -> bytes:
        """A whole request."""
        return self.head(len(body), path) + body

    async def connect(self, *, receive: int | None = None, address: str = ABUSER) -> socket.socket:
        """A connection from the abuser's address; `receive` bytes of receive buffer."""
        made = socket.socket()
        if receive:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        made.bind((address, 0))
        made.setblocking(False)
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", self.port))
        return made

    async def send(self, data: bytes, *, receive: int | None = None, address: str = ABUSER) -> socket.socket:
        """Connect and send; a refusal in between is no error."""
        made = await self.connect(receive=receive, address=address)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.get_running_loop().sock_sendall(made, data)
        return made


async def _answered(connections: list[socket.socket]) -> None:
    """Until each has had the beginning of an answer, or ten seconds."""

    async def one(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            await asyncio.get_running_loop().sock_recv(connection, 100)

    await asyncio.wait([asyncio.ensure_future(one(each)) for each in connections], timeout=10)


async def _together(sending: list[Awaitable[socket.socket]]) -> list[socket.socket]:
    return list(await asyncio.gather(*sending))


async def quiet(abuser: Abuser) -> None:  # noqa: ARG001 - one form for all
    """Nothing: what the machine does by itself."""
    await asyncio.sleep(5)


async def slow_bodies(abuser: Abuser) -> None:
    """F6: nine bodies of 8 MB that never come to their end."""
    held = await _together([abuser.send(abuser.head(8_388_400) + b" " * 8_388_000) for _ in range(8)])
    held += [await abuser.send(abuser.head(8_388_400) + b" " * 200) for _ in range(20)]
    await asyncio.sleep(5)
    _close(held)


async def idle_connections(abuser: Abuser) -> None:
    """F8: 10,000 connections that say nothing."""
    held = [await abuser.connect() for _ in range(10_000)]
    await asyncio.sleep(5)
    _close(held)


async def waiting_bodies(abuser: Abuser) -> None:
    """F9: 120 whole requests of 8 MB to an engine that does not answer."""
    request = abuser.whole(_chat(b"abuse:silent" + b"a" * 8_000_000))
    held = [await abuser.send(request) for _ in range(120)]
    await asyncio.sleep(5)
    _close(held)


async def never_reads(abuser: Abuser) -> None:
    """F10: small requests whose answers are not read, then a long one, on one connection."""
    connection = await abuser.connect(receive=4096)
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        for _ in range(120):
            async with asyncio.timeout(1):
                await loop.sock_sendall(connection, abuser.whole(_chat(b"abuse:plain")))
            await asyncio.sleep(0.2)
        async with asyncio.timeout(1):
            await loop.sock_sendall(connection, abuser.whole(_chat(b"abuse:flood", stream=True)))
    await asyncio.sleep(6)
    connection.close()


async def small_chunks(abuser: Abuser) -> None:
    """F15: four bodies in chunks of two bytes."""
    request = abuser.head(None) + b"2\r\naa\r\n" * 2_300_000
    held = await _together([abuser.send(request) for _ in range(4)])
    await asyncio.sleep(2)
    _close(held)


def _wide() -> dict[str, bytes]:
    def listed(values: Iterator[bytes], start: bytes = b"[", end: bytes = b"]") -> bytes:
        return b'{"messages":[{"role":"user","content":"abuse:plain"}],"x":' + start + b",".join(values) + end + b"}"

    return {
        "keys": listed((b'"%d":1' % i for i in range(600_000)), b"{", b"}"),
        "floats": listed(b"0.%d" % i for i in range(999_000)),
        "digits": listed(b"1" * 4_200 for _ in range(1_900)),
        "integers": listed(b"%d" % (i % 99_999) for i in range(999_000)),
        "objects": listed(b"{}" for _ in range(86_000)),
        "text": _chat(b"abuse:plain" + b"a, b " * 1_600_000),
    }


async def wide(abuser: Abuser) -> None:
    """F16: bodies of many values, one after the other."""
    for body in _wide().values():
        for _ in range(3):
            held = await abuser.send(abuser.whole(body))
            await _answered([held])
            held.close()


async def wide_together(abuser: Abuser) -> None:
    """F16: twenty large bodies at once."""
    bodies = list(_wide().values())
    held = await _together([abuser.send(abuser.whole(bodies[number % len(bodies)])) for number in range(20)])
    await _answered(held)
    _close(held)


async def copies(abuser: Abuser) -> None:
    """F17: 30 times 2,048 texts, each of which gets the system prompt."""
    request = abuser.whole(b'{"prompt":["abuse:silent"' + b',"a"' * 2_047 + b"]}", "/v1/completions")
    held = await _together([abuser.send(request) for _ in range(30)])
    await asyncio.sleep(5)
    _close(held)


async def crowd(abuser: Abuser) -> None:
    """10,000 idle connections, and 2,000 that never read a long answer: through the gateway's address."""
    held = [await abuser.connect(address=GATEWAY) for _ in range(10_000)]
    request = abuser.whole(_chat(b"abuse:flood", stream=True))
    for _ in range(40):
        held += await _together([abuser.send(request, receive=4096, address=GATEWAY) for _ in range(50)])
    await asyncio.sleep(5)
    _close(held)


ABUSES: dict[str, Callable[[Abuser], Awaitable[None]]] = {
    abuse.__name__: abuse
    for abuse in (
        quiet,
        slow_bodies,
        idle_connections,
        waiting_bodies,
        never_reads,
        small_chunks,
        wide,
        wide_together,
        copies,
        crowd,
    )
}


def _chat(text: bytes, *, stream: bool = False) -> bytes:
    asked = b'"stream":true,' if stream else b""
    return b"{" + asked + b'"messages":[{"role":"user","content":"' + text + b'"}]}'


def _close(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.close()


def measure(name: str, connections: int) -> dict[str, Any]:
    """One abuse against a fresh wrapper."""
    with tempfile.TemporaryDirectory() as made, engine() as engine_port:
        directory, port = Path(made), reserve_port()
        (directory / "prompt.txt").write_text("You are Huddle. " * 1_280)  # 20 KB
        (directory / "wrapper.yaml").write_text(json.dumps(_config(directory, port, engine_port, connections)))
        report = directory / "report.json"
        argv = [sys.executable, str(HERE / "watched_wrapper.py"), str(directory / "wrapper.yaml"), str(report)]
        with subjects.running(argv, port, 60, log=directory / "log") as pid:
            time.sleep(1)
            before = subjects.rss_mib((pid,))
            bystander = subprocess.Popen(
                [sys.executable, str(HERE / "bystander.py"), str(port), KEYS["bystander"]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            time.sleep(1.5)
            with _peak(pid) as peak:
                attack(name, port)
            seen, _ = bystander.communicate("")
            os.kill(pid, signal.SIGTERM)
            _wait_for(report)
        memory = {"rss_before_mib": before, "rss_peak_mib": peak[0]}
        return {**json.loads(seen), **json.loads(report.read_text()), **memory}


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.1)


def attack(name: str, port: int) -> None:
    """Abuse whoever listens on a port."""

    async def run() -> None:
        await ABUSES[name](Abuser(port))

    asyncio.run(run())


def _config(directory: Path, port: int, engine_port: int, connections: int) -> dict[str, Any]:
    return {
        "listen": f"127.0.0.1:{port}",
        "timeouts": {"drain_s": 1},
        "metrics_listen": None,
        "upstream": f"http://127.0.0.1:{engine_port}",
        "models": {"bench": {"system_prompt_file": str(directory / "prompt.txt")}},
        "limits": {"connections": connections, "concurrency": 4_096} if connections else {},
        "products": {
            name: {"keys": [{"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest()}]}
            for name, key in KEYS.items()
        },
    }


@contextlib.contextmanager
def engine(*events: int) -> Iterator[int]:
    """Run the engine for the abuses; gives its port. `events` are those of one stream, without end when left out."""
    port = reserve_port()
    with subjects.running([sys.executable, str(HERE / "hostile_engine.py"), *map(str, (port, *events))], port, 10):
        yield port


@contextlib.contextmanager
def _peak(pid: int) -> Iterator[list[float]]:
    """The largest resident memory (MiB) meanwhile."""
    peak, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            peak[0] = max(peak[0], subjects.rss_mib((pid,)))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield peak
    finally:
        over.set()
        looking.join()


def table(results: dict[str, dict[str, Any]]) -> str:
    """The numbers for a terminal."""
    lines = [f"{'abuse':18}{'still ms':>9}{'max gap':>9}{'p99':>7}{'RSS MiB':>9}{'slowest ms':>12}  small requests"]
    for name, of in results.items():
        numbers = f"{of['stood_still_ms']:9.0f}{of['max_gap_ms']:9.0f}{of['p99_gap_ms']:7.0f}{of['rss_peak_mib']:9.0f}"
        lines.append(f"{name:18}{numbers}{of['slowest_small_ms']:12.0f}  {of['answers']}")
    return "\n".join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ABUSES, default=list(ABUSES))
    parser.add_argument("--connections", type=int, help="limits.connections; the default when left out, but for crowd")
    asked = parser.parse_args()
    results = {}
    for name in asked.only:
        results[name] = measure(name, asked.connections or (14_000 if name == "crowd" else 0))
        print(table({name: results[name]}), file=sys.stderr, flush=True)
    print(table(results), file=sys.stderr)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
