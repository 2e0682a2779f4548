"""A burst of requests takes turns with the streams that run."""

import asyncio
from collections.abc import Callable

import pytest

from huddle.wrapper.turns import EACH, Turns

from .conftest import Wrapper

pytestmark = pytest.mark.anyio


async def test_the_loop_has_its_turn_between_the_parts_of_a_burst() -> None:
    turns, ran, count = Turns(asyncio.get_running_loop()), list[int](), 2 * EACH + 5
    for number in range(count):
        turns.take(lambda number=number: ran.append(number))  # type: ignore[misc]
    seen = [len(ran)]
    while len(ran) < count:
        await asyncio.sleep(0)
        seen.append(len(ran))
    assert seen == [EACH, 2 * EACH, count]
    assert ran == list(range(count))


async def test_who_comes_later_overtakes_nobody() -> None:
    turns, ran = Turns(asyncio.get_running_loop()), list[str]()
    for _ in range(2 * EACH + 1):
        turns.take(lambda: ran.append("burst"))
    await asyncio.sleep(0)
    turns.take(lambda: ran.append("later"))
    while "later" not in ran:
        await asyncio.sleep(0)
    assert ran == ["burst"] * (2 * EACH + 1) + ["later"]


async def test_a_client_that_leaves_before_its_turn_costs_the_engine_nothing(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(wrapper.service.turns, "take", waiting.append)
    asking = asyncio.create_task(wrapper.chat())
    await wrapper.until(lambda: bool(waiting))
    asking.cancel()
    await wrapper.until(lambda: not wrapper.service.running)
    waiting[0]()
    assert (wrapper.service.running, wrapper.service.admission.running) == (0, 0)
    assert wrapper.request_lines()[-1]["end"] == "client_gone"
