"""The books of everybody who counts tokens, against vLLM's own counters."""

import asyncio
from pathlib import Path

import pytest

from tests.serving.wrapper.accounts import House, Kind, schedule
from tests.serving.wrapper.conftest import MakeWrapper
from tests.serving.wrapper.real_vllm.conftest import RealEngine
from tests.serving.wrapper.tap import Tap
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio
PATHS = ("/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/responses")
WHOLE = {Kind.PLAIN: 3, Kind.STREAM: 4, Kind.STREAM_ASKING: 2}
ALL = {**WHOLE, Kind.LEFT: 1, Kind.REFUSED: 1}
COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total")


async def counted(engine: RealEngine) -> int:
    """What vLLM has counted, once it is at rest."""
    async with asyncio.timeout(scaled(60)):
        while await asyncio.to_thread(engine.metric, "vllm:num_requests_running") > 0:
            await asyncio.sleep(0.05)
    return int(sum([await asyncio.to_thread(engine.metric, name) for name in COUNTERS]))


async def test_all_agree_with_the_engine(
    make_wrapper: MakeWrapper, real_vllm: RealEngine, tap: Tap, tmp_path: Path
) -> None:
    asked = schedule(0, 60, PATHS, ALL)
    house = House(make_wrapper, tap, lambda: counted(real_vllm), tmp_path)
    books = await house.run(asked)
    await house.sender.close()
    print(books)
    assert [each.off() for each in books] == [[], []]
