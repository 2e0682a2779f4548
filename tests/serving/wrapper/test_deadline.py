"""A request waits no longer than one time for all that it needs on its way to the engine together."""

import asyncio

import pytest

from huddle.wrapper.deadline import Deadline
from tools.deadlines import scaled

from .compiling import lengths
from .conftest import MakeWrapper
from .fake_engine import Received, Reply

pytestmark = pytest.mark.anyio
STAGES = {
    "its turn among the large bodies to be read": "engine_busy",
    "a place there": "engine_busy",
    "leave to have its schema or grammar compiled, behind others": "compile_busy",
}


@pytest.mark.slow
@pytest.mark.parametrize("last", STAGES)
async def test_all_waits_together_are_bounded_and_the_answer_says_which_was_the_last(
    make_wrapper: MakeWrapper, last: str
) -> None:
    queue_s = scaled(3)
    limits = {"concurrency": 2, "caller_share": 0.5, "compile_s": 20, "compile_total_s": 20}
    wrapper = await make_wrapper(limits=limits, timeouts={"queue_s": queue_s})

    async def silent(request: Received, reply: Reply) -> None:
        await reply.closed_by_peer()

    def tenant(name: str) -> dict[str, str]:
        return {"x-huddle-tenant": name}

    wrapper.engine.script = silent
    compiling = asyncio.create_task(wrapper.chat(headers=tenant("b"), **lengths(3, 180)))
    running = asyncio.create_task(wrapper.chat(headers=tenant("a")))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 2)
    loop, stage = asyncio.get_running_loop(), list(STAGES).index(last)
    async with wrapper.service.workbench.turn(("", "b"), Deadline.after(60)):
        begun = loop.time()
        large = [{"role": "user", "content": "a" * 300_000}]
        asked = asyncio.create_task(wrapper.chat(headers=tenant("a"), **lengths(3, 190) | {"messages": large}))
        await asyncio.wait([asked], timeout=queue_s / 3 if stage else None)
    if stage == 2:
        await wrapper.until(lambda: wrapper.service.admission.waiting == 1)
        await asyncio.wait([asked], timeout=begun + queue_s * 2 / 3 - loop.time())
        running.cancel()
    answer = await asked
    took_s, error = loop.time() - begun, answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, STAGES[last])
    assert error["message"] == f"this request could not go to the engine within {queue_s:g} s: it waited for {last}"
    assert int(answer.headers["retry-after"]) >= 1
    assert queue_s * 0.99 < took_s < queue_s * 1.3, "each wait by itself would add a third of it"
    for task in (compiling, running):
        task.cancel()
