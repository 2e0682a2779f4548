"""The books of everybody who counts tokens, against vLLM's own counters."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.serving.wrapper.accounts import House, Kind, schedule
from tests.serving.wrapper.conftest import MakeWrapper
from tests.serving.wrapper.real_vllm.conftest import RealEngine
from tests.serving.wrapper.tap import Tap
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio
PATHS = ("/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/responses")
WHOLE = {Kind.PLAIN: 12, Kind.STREAM: 16, Kind.STREAM_ASKING: 8}
ALL = {**WHOLE, Kind.LEFT: 2, Kind.REFUSED: 1}
COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")


async def counted(engine: RealEngine) -> int:
    """What vLLM has counted, once it is at rest."""
    async with asyncio.timeout(scaled(60)):
        while await asyncio.to_thread(engine.metric, "vllm:num_requests_running") > 0:
            await asyncio.sleep(0.05)
    return int(sum([await asyncio.to_thread(engine.metric, name) for name in COUNTERS]))


@pytest.fixture
async def house(make_wrapper: MakeWrapper, real_vllm: RealEngine, tap: Tap, tmp_path: Path) -> AsyncIterator[House]:
    made = House(make_wrapper, tap, lambda: counted(real_vllm), tmp_path)
    yield made
    await made.sender.close()


async def test_whole_answers_are_counted_to_the_token(house: House) -> None:
    asked = schedule(0, 30, PATHS, WHOLE)
    assert (await house.through_gateway(asked)).off(tolerance=0) == []
    assert (await house.with_key(asked)).off(tolerance=0) == []


async def test_whatever_clients_do_is_counted_within_two_percent(house: House) -> None:
    """Who leaves has seen some of the tokens; the engine goes on until it notices.

    Behind the gateway nobody leaves here: it estimates such a stream by its own idea of a token, and a token of the
    tiny model is a byte.
    """
    asked = schedule(0, 60, PATHS, ALL)
    assert (await house.through_gateway([each for each in asked if each.kind is not Kind.LEFT])).off() == []
    assert (await house.with_key(asked)).off() == []
