"""Streams at a steady concurrency, from several processes, so that the client is not what is measured.

Every prompt is its own (no answer comes from the prefix cache), and every answer must have exactly `max_tokens` tokens
by the engine's own count, or it is an error.
"""

import asyncio
import json
import random
import re
import statistics
import string
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from huddle.headers import OVERHEAD_HEADER

PROMPT_LETTERS = 480  # with the template about 500 tokens of the byte tokenizer; the wrapper adds its system prompt
_OVERHEAD = re.compile(rb"(?i)%b: ([\d.]+)" % OVERHEAD_HEADER.encode())
_TOKENS = re.compile(rb'"completion_tokens": ?(\d+)')
_END = b"0\r\n\r\n"


@dataclass(frozen=True)
class Target:
    """Where and what to ask."""

    port: int
    model: str
    headers: tuple[tuple[str, str], ...] = ()
    max_tokens: int = 128
    letters: int = PROMPT_LETTERS

    def request(self, seed: int) -> bytes:
        """One request; another seed, another prompt."""
        chance = random.Random(seed)
        prompt = f"{seed} " + "".join(chance.choices(string.ascii_lowercase, k=self.letters))
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


@dataclass
class Sample:
    """One stream. Times are `time.time()`, so that processes compare."""

    began: float
    first: float = 0.0
    ended: float = 0.0
    tokens: int = 0
    events: int = 0
    overhead_ms: float | None = None
    error: str = ""


class _Stream(asyncio.Protocol):
    """One connection that works through its seeds."""

    def __init__(self, target: Target, seeds: Iterator[int], samples: list[Sample]) -> None:
        self._target, self._seeds, self._samples = target, seeds, samples
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tail = b""
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
            found = _OVERHEAD.search(data)
            sample.overhead_ms = float(found[1]) if found else None
            if data[9:12] != b"200":
                sample.error = data[:200].decode(errors="replace")
        sample.events += data.count(b"data: ")
        if not sample.first and sample.events > 1:  # the first event only names the role
            sample.first = time.time()
        self._tail = (self._tail + data)[-2048:]
        if self._tail.endswith(_END):
            self._finish(sample)

    def _finish(self, sample: Sample) -> None:
        sample.ended = time.time()
        counts = _TOKENS.findall(self._tail)
        sample.tokens = int(counts[-1]) if counts else 0
        if not sample.error and (sample.tokens != self._target.max_tokens or not sample.first):
            sample.error = f"{sample.tokens} tokens: {self._tail[-200:].decode(errors='replace')}"
        self._samples.append(sample)
        self._sample = None
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sample is not None:
            self._sample.ended = time.time()
            self._sample.error = f"connection lost after {self._sample.events} events: {exc}"
            self._samples.append(self._sample)
        self.done.set_result(None)


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


@dataclass
class Load:
    """Runs levels; no two requests of one `Load` have the same prompt."""

    processes: int = 8
    _used: int = field(default=0)

    def run(self, target: Target, streams: int, requests: int) -> list[Sample]:
        """`requests` streams, `streams` at a time."""
        count = min(self.processes, streams)
        seeds = range(self._used, self._used + requests)
        self._used += requests
        with ProcessPoolExecutor(count) as pool:
            parts = [
                pool.submit(_one_process, target, streams // count + (part < streams % count), list(seeds[part::count]))
                for part in range(count)
            ]
            return [sample for part in parts for sample in part.result()]


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Rates and times of a level; milliseconds."""
    good = [s for s in samples if not s.error]
    errors = [s.error for s in samples if s.error]
    if not good:
        return {"requests": 0, "errors": len(errors), "first_errors": errors[:3]}
    seconds = max(s.ended for s in good) - min(s.began for s in good)
    first = sorted((s.first - s.began) * 1e3 for s in good)
    token = sorted((s.ended - s.first) * 1e3 / max(s.tokens - 1, 1) for s in good)
    overhead = sorted(s.overhead_ms for s in good if s.overhead_ms is not None)
    result = {
        "requests": len(good),
        "errors": len(errors),
        "first_errors": errors[:3],
        "seconds": round(seconds, 3),
        "output_tokens_per_s": round(sum(s.tokens for s in good) / seconds, 1),
        "ttft_p50_ms": round(statistics.median(first), 2),
        "ttft_p99_ms": round(first[int(len(first) * 0.99)], 2),
        "tpot_p50_ms": round(statistics.median(token), 3),
        "events_per_answer": round(statistics.mean(s.events for s in good), 1),
    }
    if overhead:
        result |= {
            "overhead_p50_ms": round(statistics.median(overhead), 3),
            "overhead_p99_ms": round(overhead[int(len(overhead) * 0.99)], 3),
        }
    return result
