"""Large bodies are read in turns: nobody waits behind all of somebody else's."""

import asyncio

import pytest

from huddle.wrapper.access.fairness import Holder
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import RequestError
from huddle.wrapper.workbench import Workbench

ALICE: Holder = ("team", "alice")
BOB: Holder = ("team", "bob")


class Bench:
    """A bench with a body on it that takes until `go`, and the order in which others are read."""

    def __init__(self, each: int = 8) -> None:
        self.bench = Workbench(each)
        self.read: list[Holder] = []
        self.go = asyncio.Event()
        self.first = asyncio.create_task(self.occupy())

    async def occupy(self) -> None:
        async with self.bench.turn(ALICE, Deadline.after(60)):
            await self.go.wait()

    async def ask(self, caller: Holder, wait_s: float = 60) -> None:
        async with self.bench.turn(caller, Deadline.after(wait_s)):
            self.read.append(caller)


@pytest.mark.anyio
async def test_callers_take_turns() -> None:
    bench = Bench()
    await asyncio.sleep(0)
    asked = []
    for caller in [ALICE] * 4 + [BOB] * 2:
        asked.append(asyncio.create_task(bench.ask(caller)))
        await asyncio.sleep(0)
    bench.go.set()
    await asyncio.gather(bench.first, *asked)
    assert bench.read == [ALICE, BOB, ALICE, BOB, ALICE, ALICE]


@pytest.mark.anyio
async def test_one_caller_has_only_so_many_in_line() -> None:
    bench = Bench(each=2)
    await asyncio.sleep(0)
    asked = [asyncio.create_task(bench.ask(ALICE)) for _ in range(3)]
    asked.append(asyncio.create_task(bench.ask(BOB)))
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert done == {asked[2]}
    refused = asked.pop(2).exception()
    assert isinstance(refused, RequestError)
    assert (refused.status, refused.retry_after_s) == (429, 1)
    bench.go.set()
    await asyncio.gather(bench.first, *asked)


@pytest.mark.anyio
async def test_the_wait_for_a_turn_is_bounded_and_who_gives_up_is_passed_over() -> None:
    bench = Bench()
    await asyncio.sleep(0)
    with pytest.raises(RequestError) as refused:
        await bench.ask(BOB, 0.05)
    assert refused.value.status == 429
    gone, stays = asyncio.create_task(bench.ask(BOB)), asyncio.create_task(bench.ask(BOB))
    await asyncio.sleep(0)
    gone.cancel()
    bench.go.set()
    await asyncio.gather(bench.first, stays)
    await bench.ask(ALICE)
    assert bench.read == [BOB, ALICE]
