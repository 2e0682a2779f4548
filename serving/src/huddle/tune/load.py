"""Streams at a steady concurrency, from several processes, so that the client is not what is measured.

Every prompt is its own behind what all share, and every answer must have exactly `max_tokens` tokens by the engine's
own count, or it is an error. (`huddle bench` asks through the SDK in one process, which would be the limit here.)
"""

import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
_END = b"0\r\n\r\n"
_HEAD_BYTES = 1024
_ALPHABET = string.ascii_lowercase + 5 * " "
MOST_PROCESSES = 8
LEVEL_S = 600.0
_REASON_S = 0.2
"""How long a refusal may still bring its reason, which comes behind its head."""
_MOST_OF_A_REASON = 300


@dataclass(frozen=True)
class Target:
    """Where and what to ask."""

    port: int
    model: str
    headers: tuple[tuple[str, str], ...] = ()
    max_tokens: int = 128
    letters: int = 480  # of each prompt's own
    shared: str = ""  # what every prompt begins with

    def request(self, seed: int) -> bytes:
        """One request; another seed, another prompt."""
        prompt = f"{self.shared}{seed} {text(self.letters, seed)}"
        fields = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body = json.dumps(fields).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in self.headers)
        start = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{head}"
        return f"{start}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def text(letters: int, seed: int) -> str:
    """Words that mean nothing."""
    return "".join(random.Random(seed).choices(_ALPHABET, k=letters))  # noqa: S311 - nobody's secret


@dataclass
class Sample:
    """One stream. Times are `time.time()`, so that processes compare; `gaps` lie between the arrivals of tokens."""

    began: float
    first: float = 0.0
    ended: float = 0.0
    tokens: int = 0
    events: int = 0
    gaps: list[float] = field(default_factory=list)
    head: bytes = b""
    error: str = ""


class _Stream(asyncio.Protocol):
    """One connection that works through its seeds."""

    def __init__(self, target: Target, seeds: Iterator[int], samples: list[Sample]) -> None:
        self._target, self._seeds, self._samples = target, seeds, samples
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""
        self._last = 0.0
        self._sample: Sample | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._next()

    def _next(self) -> None:
        seed = next(self._seeds, None)
        if seed is None:
            self._transport.close()
            return
        self._tail = b""
        self._sample = Sample(time.time())
        self._transport.write(self._target.request(seed))

    def data_received(self, data: bytes) -> None:
        sample = self._sample
        if sample is None:
            return
        if not self._tail:
            sample.head = data[:_HEAD_BYTES]
            if data[9:12] != b"200":
                asyncio.get_running_loop().call_later(_REASON_S, self._transport.close)
                sample.error = "refused"
        if sample.error:
            self._tail += data[:_HEAD_BYTES]
            sample.error = _refusal(self._tail)
            return
        events = data.count(b"data: ")
        sample.events += events
        if sample.first and events:
            now = time.time()
            sample.gaps.append(now - self._last)
            self._last = now
        elif sample.events > 1:  # the first event only names the role
            sample.first = self._last = time.time()
        self._tail = (self._tail + data)[-2048:]
        if self._tail.endswith(_END):
            self._finish(sample)

    def _finish(self, sample: Sample) -> None:
        sample.ended = time.time()
        counts = _TOKENS.findall(self._tail)
        sample.tokens = int(counts[-1]) if counts else 0
        if sample.tokens != self._target.max_tokens or not sample.first:
            sample.error = f"{sample.tokens} tokens: {self._tail[-200:].decode(errors='replace')}"
        self._samples.append(sample)
        self._sample = None
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sample is not None:
            self._sample.ended = time.time()
            self._sample.error = self._sample.error or f"connection lost after {self._sample.events} events: {exc}"
            self._samples.append(self._sample)
        self.done.set_result(None)


def _refusal(answer: bytes) -> str:
    """The status and what is said of it, as one line."""
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    status = head.partition("\r\n")[0].partition(" ")[2]
    return " ".join(f"{status}: {body}".split())[:_MOST_OF_A_REASON].rstrip(": ")


def _one_process(target: Target, connections: int, seeds: Sequence[int]) -> list[Sample]:
    import uvloop  # noqa: PLC0415 - in the child only

    samples: list[Sample] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        left = iter(seeds)
        made = [
            await loop.create_connection(lambda: _Stream(target, left, samples), "127.0.0.1", target.port)
            for _ in range(connections)
        ]
        await asyncio.gather(*(protocol.done for _, protocol in made))

    uvloop.run(run())
    return samples


def _begin() -> None:
    """A child leaves Ctrl-C to its parent, which then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@dataclass
class Load:
    """Runs levels; no two requests of one `Load` have the same prompt."""

    processes: int = field(default_factory=lambda: max(1, min(MOST_PROCESSES, (os.cpu_count() or 2) // 2)))
    _used: int = field(default=0)

    def run(self, target: Target, streams: int, requests: int) -> list[Sample]:
        """`requests` streams, `streams` at a time.

        Raises:
            TimeoutError: they have not ended after `LEVEL_S`.
        """
        count = min(self.processes, streams)
        seeds = range(self._used, self._used + requests)
        self._used += requests
        parts = [
            (target, streams // count + (part < streams % count), list(seeds[part::count])) for part in range(count)
        ]
        with multiprocessing.Pool(count, _begin) as pool:
            running = pool.starmap_async(_one_process, parts, chunksize=1)
            running.wait(LEVEL_S)
            if not running.ready():
                raise TimeoutError(f"the answers at {streams} streams had not ended after {LEVEL_S:g} s")
            return [sample for part in running.get() for sample in part]
