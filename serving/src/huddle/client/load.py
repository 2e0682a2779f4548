"""Load on an endpoint: streams at a given concurrency, and when their tokens came.

Answers are read as lines of bytes and mostly not parsed, so that a busy client does not pass for a slow server.
"""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from huddle.client import problems
from huddle.client.connection import Connection

DATA = "data: "
DONE = "data: [DONE]"


@dataclass(frozen=True)
class Sample:
    """One stream; seconds on one clock. `error` is a sentence where it did not end well."""

    began_s: float
    ended_s: float
    first_token_s: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Load:
    """What is asked at every level."""

    model: str
    prompt: str
    max_tokens: int
    ignore_eos: bool = False

    def body(self, number: int) -> dict[str, Any]:
        """Fields of one request. The number comes first, so that no prompt is answered from the engine's cache."""
        extra = {"ignore_eos": True} if self.ignore_eos else {}
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": f"{number}. {self.prompt}"}],
            "max_tokens": self.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_body": extra,
        }


class Driver:
    """Keeps a number of streams running at an endpoint."""

    def __init__(self, client: openai.AsyncOpenAI, connection: Connection, load: Load) -> None:
        self._client, self._connection, self._load = client, connection, load
        self._numbers = itertools.count(1)

    async def level(self, concurrency: int, requests: int, tick: Callable[[], None]) -> list[Sample]:
        """`requests` streams, `concurrency` at a time."""
        samples: list[Sample] = []
        left = iter(range(requests))

        async def work(mine: Iterator[int]) -> None:
            for _ in mine:
                samples.append(await self.one())
                tick()

        await asyncio.gather(*(work(left) for _ in range(min(concurrency, requests))))
        return samples

    async def one(self) -> Sample:
        """Send one request and read its stream to the end; a failure is in the sample."""
        began = time.perf_counter()
        reading = Reading()
        try:
            create = self._client.chat.completions.with_streaming_response.create
            async with create(**self._load.body(next(self._numbers))) as response:
                async for line in response.iter_lines():
                    reading.take(line)
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            sentence = str(problems.explain(error, self._connection))
            return Sample(began, time.perf_counter(), reading.first_s, error=sentence)
        error_text = reading.error or (None if reading.done else "the answer broke off")
        return Sample(
            began,
            time.perf_counter(),
            reading.first_s,
            int(reading.usage.get("prompt_tokens", 0)),
            int(reading.usage.get("completion_tokens", reading.events)),
            error_text,
        )


class Reading:
    """What is kept of a stream of server-sent events."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        self.events = 0  # with text; an estimate of the tokens for servers that do not count them
        self.usage: dict[str, Any] = {}
        self.error: str | None = None
        self.done = False

    def take(self, line: str) -> None:
        """Count one line of server-sent events, without its line break."""
        if not line.startswith(DATA):
            return
        if line == DONE:
            self.done = True
        elif self.first_s is None or '"usage":' in line or '"error"' in line[:16]:
            self._parse(line)
        else:
            self.events += 1

    def _parse(self, line: str) -> None:
        value = json.loads(line.removeprefix(DATA))
        if "error" in value:
            self.error = str((value["error"] or {}).get("message"))
        self.usage = value.get("usage") or self.usage
        delta = (value.get("choices") or [{}])[0].get("delta") or {}
        if any(delta.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls")):
            self.events += 1
            self.first_s = self.first_s or time.perf_counter()
