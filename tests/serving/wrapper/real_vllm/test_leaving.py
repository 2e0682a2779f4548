"""Work stops when nobody waits for it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from tests.serving.wrapper.conftest import Wrapper
from tests.serving.wrapper.real_vllm.conftest import USER, RealEngine
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio

LONG = {"model": "tiny", "messages": USER, "max_tokens": 1900, "ignore_eos": True}
Ask = Callable[[], Awaitable[None]]


async def engine(real_vllm: RealEngine, name: str) -> float:
    return await asyncio.to_thread(real_vllm.metric, f"vllm:{name}")


async def tokens_for_nobody(wrapped: Wrapper, real_vllm: RealEngine, ask_and_leave: Ask) -> float:
    """How many tokens the engine made for a client that left. On a busy machine it may have made all before: again."""
    made, end = 0.0, time.monotonic() + scaled(60)
    while not 0 < made < LONG["max_tokens"] and time.monotonic() < end:
        before = await engine(real_vllm, "generation_tokens_total")
        await ask_and_leave()
        await wrapped.until(lambda: wrapped.service.running == 0)
        async with asyncio.timeout(scaled(60)):
            while await engine(real_vllm, "num_requests_running") > 0:
                await asyncio.sleep(0.01)
        made = await engine(real_vllm, "generation_tokens_total") - before
    return made


async def test_a_client_that_leaves_its_stream_frees_the_engine(wrapped: Wrapper, real_vllm: RealEngine) -> None:
    async def ask_and_leave() -> None:
        async with wrapped.http.stream("POST", "/v1/chat/completions", json={**LONG, "stream": True}) as response:
            await anext(response.aiter_bytes())  # the engine is at work

    assert 0 < await tokens_for_nobody(wrapped, real_vllm, ask_and_leave) < LONG["max_tokens"]


async def test_a_client_that_leaves_before_its_answer_frees_the_engine(wrapped: Wrapper, real_vllm: RealEngine) -> None:
    async def ask_and_leave() -> None:
        before = await engine(real_vllm, "generation_tokens_total")
        asking = asyncio.create_task(wrapped.http.post("/v1/chat/completions", json=LONG))
        while not asking.done() and await engine(real_vllm, "generation_tokens_total") <= before:
            await asyncio.sleep(0.01)
        asking.cancel()

    assert 0 < await tokens_for_nobody(wrapped, real_vllm, ask_and_leave) < LONG["max_tokens"]
