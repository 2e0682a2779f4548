"""Quota, `infra usage`, metrics and keys' limits agree with the engine's own count, whatever clients do.

docs/decisions/0021-tokens-that-add-up.md
"""

from pathlib import Path

import pytest

from .accounts import Books, House, Kind, schedule
from .conftest import MakeWrapper
from .counting_engine import CountingEngine
from .fake_engine import fake_engine

pytestmark = pytest.mark.anyio
PATHS = ("/v1/chat/completions", "/v1/chat/completions", "/v1/completions")
WHOLE = {Kind.PLAIN: 3, Kind.STREAM: 4, Kind.STREAM_ASKING: 2}
ALL = {Kind.PLAIN: 36, Kind.STREAM: 36, Kind.STREAM_ASKING: 20, Kind.LEFT: 6, Kind.ENGINE_FAILS: 1, Kind.REFUSED: 1}


async def books_of(
    seed: int, kinds: dict[Kind, int], make: MakeWrapper, directory: Path, *, limits_estimate_streams: bool = False
) -> tuple[Books, Books]:
    asked = schedule(seed, 150, PATHS, kinds)
    async with fake_engine() as engine:
        counting = engine.script = CountingEngine(asked)
        house = House(make, engine, counting.count, directory, limits_estimate_streams)
        found = await house.through_gateway(asked), await house.with_key(asked)
        await house.sender.close()
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_whole_answers_are_counted_to_the_token(seed: int, make_wrapper: MakeWrapper, tmp_path: Path) -> None:
    books = await books_of(seed, WHOLE, make_wrapper, tmp_path)
    assert [each.off(tolerance=0) for each in books] == [[], []]


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_clients_do_is_counted_within_two_percent(
    seed: int, make_wrapper: MakeWrapper, tmp_path: Path
) -> None:
    books = await books_of(seed, ALL, make_wrapper, tmp_path)
    assert [each.off() for each in books] == [[], []]


async def test_where_limits_estimate_streams_only_they_are_off(make_wrapper: MakeWrapper, tmp_path: Path) -> None:
    """As the page of `llm-token-limit` says; what `infra usage` reads comes from another element."""
    by_gateway, by_key = await books_of(0, ALL, make_wrapper, tmp_path, limits_estimate_streams=True)
    assert [line.partition(":")[0] for line in by_gateway.off()] == ["the gateway's quota"]
    assert by_key.off() == []
