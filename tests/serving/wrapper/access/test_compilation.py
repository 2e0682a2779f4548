"""The engine compiles schemas and grammars for one caller at the others' expense: so much of it, and no more."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.auth import Caller, Via
from huddle.wrapper.access.compilation import Compilations, Leave
from huddle.wrapper.body.compile_cost import Compiling
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import RequestError
from tests.serving.wrapper.compiling import USER, lengths
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import Received, Reply, polite, token

A, B, C = (Caller(Via.GATEWAY, "p", tenant) for tenant in "abc")


def later() -> Deadline:
    return Deadline.after(60)


# -- who may --


@pytest.mark.anyio
async def test_seconds_are_bounded_for_each_caller_and_in_total() -> None:
    compilations = Compilations(each_s=10, total_s=15, queue=10)
    first = await compilations.enter(A, Compiling(b"1", 8), later())
    second = asyncio.create_task(compilations.enter(A, Compiling(b"2", 8), later()))  # over A's own
    other = await compilations.enter(B, Compiling(b"3", 7), later())  # passes it: 15 in total
    third = asyncio.create_task(compilations.enter(C, Compiling(b"4", 1), later()))  # over the total
    await asyncio.sleep(0)
    assert first and other
    assert not second.done()
    assert not third.done()
    other.answered()
    assert (await third) is not None
    assert not second.done()
    first.answered()
    assert (await second) is not None


@pytest.mark.anyio
async def test_whoever_waits_for_the_same_schema_goes_when_it_is_answered() -> None:
    compilations = Compilations(10, 10, 10)
    leave = await compilations.enter(A, Compiling(b"1", 8), later())
    same = [asyncio.create_task(compilations.enter(caller, Compiling(b"1", 8), later())) for caller in (A, B)]
    await asyncio.sleep(0)
    assert leave
    leave.answered()
    assert await asyncio.gather(*same) == [None, None]
    assert not compilations.needs_leave(Compiling(b"1", 8))
    assert compilations.total == 0


@pytest.mark.anyio
async def test_cheap_ones_pass_one_that_does_not_fit_the_total_but_not_for_ever() -> None:
    compilations = Compilations(10, 10, 100)
    first = await compilations.enter(A, Compiling(b"1", 6), later())
    large = asyncio.create_task(compilations.enter(B, Compiling(b"2", 9), later()))
    await asyncio.sleep(0)
    passed = 0
    while passed < 100:
        small = asyncio.create_task(compilations.enter(C, Compiling(b"3", 1), later()))
        for _ in range(3):
            await asyncio.sleep(0)
        if not small.done():
            small.cancel()
            break
        passed += 1
        leave = small.result()
        assert leave
        leave.end()
    assert 0 < passed < 100
    assert first
    first.end()
    assert await large is not None


@pytest.mark.anyio
async def test_a_wait_ends_in_a_429_with_a_time() -> None:
    compilations = Compilations(10, 10, 10)
    await compilations.enter(A, Compiling(b"1", 8), later())
    with pytest.raises(RequestError) as refused:
        await compilations.enter(B, Compiling(b"2", 8), Deadline.after(0.01))
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (429, "compile_busy", 8)


@pytest.mark.anyio
async def test_no_caller_fills_the_line() -> None:
    compilations = Compilations(10, 10, 100)
    await compilations.enter(A, Compiling(b"0", 8), later())
    waiting = [asyncio.create_task(compilations.enter(A, Compiling(bytes([i]), 8), later())) for i in range(1, 17)]
    await asyncio.sleep(0)
    with pytest.raises(RequestError):
        await compilations.enter(A, Compiling(b"x", 8), later())
    other = asyncio.create_task(compilations.enter(B, Compiling(b"y", 8), later()))
    await asyncio.sleep(0)
    assert not other.done()
    for task in (*waiting, other):
        task.cancel()


STEP = st.tuples(
    st.sampled_from(["enter", "end", "answer", "cancel"]),
    st.sampled_from([A, B, C]),
    st.floats(0.25, 10),
    st.integers(0, 5),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_no_schedule_goes_over_a_bound_or_forgets_anybody(steps: list[tuple[str, Caller, float, int]]) -> None:
    async def run() -> None:
        compilations = Compilations(each_s=10, total_s=15, queue=100)
        tasks: list[asyncio.Task[Leave | None]] = []
        ended: set[Leave] = set()

        def running() -> list[Leave]:
            done = [task.result() for task in tasks if task.done() and not task.cancelled() and not task.exception()]
            return [leave for leave in done if leave is not None and leave not in ended]

        async def settle() -> None:
            for _ in range(5):
                await asyncio.sleep(0)
            under_way = running()
            assert compilations.total == pytest.approx(sum(leave.compiling.cost_s for leave in under_way))
            assert compilations.total <= 15 + 1e-6
            for caller in (A, B, C):
                assert sum(leave.compiling.cost_s for leave in under_way if leave.caller == caller) <= 10 + 1e-6

        for what, caller, cost_s, number in steps:
            if what == "enter":
                compiling = Compiling(bytes([number]), cost_s)
                tasks.append(asyncio.create_task(compilations.enter(caller, compiling, later())))
            elif what == "cancel" and tasks:
                tasks[number % len(tasks)].cancel()
            elif under_way := running():
                leave = under_way[number % len(under_way)]
                ended.add(leave)
                (leave.answered if what == "answer" else leave.end)()
            await settle()
        while under_way := running():
            ended.add(under_way[0])
            under_way[0].end()
            await settle()
        assert all(task.done() for task in tasks)
        assert compilations.total == 0

    asyncio.run(run())


# -- in the wrapper --

SECRET = {"x-huddle-tenant": "hostile"}
OTHER = {"x-huddle-tenant": "other"}


async def compiling_engine(wrapper: Wrapper, compiled: asyncio.Event) -> None:
    """The engine answers requests with lengths in their schema once it has "compiled" them."""

    async def script(request: Received, reply: Reply) -> None:
        if "maxLength" in request.body.decode():
            if request.path == "/v1/responses":
                await reply.stream_head()
                await reply.chunk(b'data: {"type": "response.created"}\n\n')
            await compiled.wait()
        await polite(request, reply)

    wrapper.engine.script = script


@pytest.mark.anyio
async def test_a_hostile_caller_waits_for_itself_and_another_tenant_does_not(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"queue_s": 0.2}, limits={"compile_s": 20, "compile_total_s": 40})
    compiled = asyncio.Event()
    await compiling_engine(wrapper, compiled)
    hostile = [asyncio.create_task(wrapper.chat(headers=SECRET, **lengths(3, 190 + i))) for i in range(4)]
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    answer = await wrapper.chat(headers=OTHER, structured_outputs={"choice": ["yes", "no"]})
    assert answer.status_code == 200
    expensive = asyncio.create_task(wrapper.chat(headers=OTHER, **lengths(3, 180)))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 3)
    refused = [await task for task in hostile[1:]]
    assert [answer.status_code for answer in refused] == [429] * 3
    assert {answer.json()["error"]["code"] for answer in refused} == {"compile_busy"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    compiled.set()
    assert [(await task).status_code for task in (hostile[0], expensive)] == [200, 200]
    assert wrapper.service.compilations.total == 0
    assert (await wrapper.chat(headers=SECRET, **lengths(3, 190))).status_code == 200  # known: at once


async def at_the_engine(wrapper: Wrapper, path: str) -> "asyncio.Task[httpx.Response]":
    """A streaming request whose schema takes seconds, once the engine has it."""
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "stream": True, **lengths(1, 100)}
    if path == "/v1/responses":
        text = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "string", "maxLength": 100}}}
        asked = {"model": "tiny", "input": "hi", "stream": True, "text": text}
    task = asyncio.create_task(wrapper.http.post(path, json=asked))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    return task


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_leaving_does_not_give_the_seconds_back(wrapper: Wrapper, path: str) -> None:
    """The engine compiles on; so a client that leaves, or whose stream has only begun, has still used its share."""
    await compiling_engine(wrapper, asyncio.Event())
    task = await at_the_engine(wrapper, path)
    await asyncio.sleep(0.05)
    assert wrapper.service.compilations.total > 1
    task.cancel()
    await wrapper.until(lambda: not wrapper.service.running)
    assert wrapper.service.compilations.total > 1


@pytest.mark.anyio
async def test_the_first_byte_of_a_stream_ends_the_compiling(wrapper: Wrapper) -> None:
    more = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await more.wait()
        await reply.chunk(token("a"))
        await reply.closed_by_peer()

    wrapper.engine.script = script
    task = asyncio.create_task(wrapper.chat(stream=True, **lengths(1, 100)))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    assert wrapper.service.compilations.total > 1
    more.set()
    await wrapper.until(lambda: wrapper.service.compilations.total == 0)
    task.cancel()


FAILED_EVENTS = {
    "/v1/chat/completions": b'data: {"error": {"message": "x", "code": 500}}\n\n',
    "/v1/responses": b'data: {"type": "response.failed", "response": {"error": {"code": "x", "message": "x"}}}\n\n',
}


@pytest.mark.anyio
@pytest.mark.parametrize("path", FAILED_EVENTS)
async def test_an_error_in_a_stream_teaches_nothing(wrapper: Wrapper, path: str) -> None:
    async def script(_request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(FAILED_EVENTS[path] + b"data: [DONE]\n\n")
        await reply.closed_by_peer()

    wrapper.engine.script = script
    task = await at_the_engine(wrapper, path)
    await asyncio.sleep(0.1)
    task.cancel()
    assert not wrapper.service.compilations._known
    assert wrapper.service.compilations.total > 1  # it may compile on


@pytest.mark.anyio
async def test_an_engine_that_fails_is_charged_and_one_that_breaks_is_not(wrapper: Wrapper) -> None:
    async def failing(_request: Received, reply: Reply) -> None:
        await reply.json({"error": {"message": "x", "code": 500}}, 500)

    wrapper.engine.script = failing
    assert (await wrapper.chat(**lengths(1, 100))).status_code == 500
    charged = wrapper.service.compilations.total
    assert charged > 1

    async def breaking(_request: Received, reply: Reply) -> None:
        reply.reset()

    wrapper.engine.script = breaking
    assert (await wrapper.chat(**lengths(1, 90))).status_code == 502
    assert wrapper.service.compilations.total == pytest.approx(charged)


@pytest.mark.anyio
async def test_a_reload_changes_the_bounds(wrapper: Wrapper) -> None:
    limits = wrapper.service.runtime.config.limits.model_copy(update={"compile_s": 1, "compile_total_s": 2})
    config = wrapper.service.runtime.config.model_copy(update={"limits": limits})
    wrapper.service.reload(runtimes.build(config, b"salt"), [])
    assert (wrapper.service.compilations.each_s, wrapper.service.compilations.total_s) == (1, 2)
    assert (await wrapper.chat(**lengths(1, 100))).status_code == 400
