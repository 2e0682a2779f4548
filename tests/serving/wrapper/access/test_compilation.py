"""The engine compiles schemas and grammars for one caller at the others' expense: so much of it, and no more."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.auth import Caller, Via
from huddle.wrapper.access.compilation import Compilations, Leave
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.compile_cost import FREE_S, Compiling
from huddle.wrapper.body.prepare import Prepared, Preparer, Served
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import Received, Reply, polite, token

A, B, C = (Caller(Via.GATEWAY, "p", tenant) for tenant in "abc")
USER = [{"role": "user", "content": "hi"}]


def prepared(**fields: Any) -> Prepared:
    body = json.dumps({"model": "m", "messages": USER, **fields}).encode()
    return Preparer({"m": Served("m", "m")}, Caps()).prepare(Route.CHAT, body, "salt")


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}


def lengths(count: int, most: int) -> dict[str, Any]:
    """A schema whose `count` texts each cost seconds with a large vocabulary."""
    properties = {f"a{i}": {"type": "string", "maxLength": most + i} for i in range(count)}
    return schema({"type": "object", "properties": properties})


# -- what it costs --

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["a", "b", "c"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
        "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
CHEAP: dict[str, dict[str, Any]] = {
    "nothing": {},
    "json mode": {"response_format": {"type": "json_object"}},
    "an ordinary schema": schema(PERSON),
    "a long choice": {"structured_outputs": {"choice": [f"country-{i}" for i in range(1_000)]}},
    "a choice": {"structured_outputs": {"choice": ["yes", "no"]}},
    "a date": {"structured_outputs": {"regex": r"\d{4}-\d{2}-\d{2}"}},
    "twenty tools": {"tools": [{"type": "function", "function": {"name": "f", "parameters": PERSON}}] * 20},
}


@pytest.mark.parametrize("case", CHEAP)
def test_ordinary_requests_need_no_leave(case: str) -> None:
    assert prepared(**CHEAP[case]).compiling is None


RULES = "\n".join(f'r{i} ::= "x" r{i + 1}? | [a-z]+ r{i * 7 % 1_400} | "y"' for i in range(1_400)) + '\nr1400 ::= "z"'
MEASURED = [  # seconds of one core, vocabulary of 128,000, xgrammar 0.2.8
    (lengths(1, 20), 0.50),
    (lengths(1, 100), 3.14),
    (lengths(5, 50), 8.25),
    (schema({"properties": {f"a{i}": {"type": "string", "maxLength": 50} for i in range(20)}}), 1.48),
    ({"structured_outputs": {"choice": ["a" * 40 + f"{i:012}" for i in range(2_000)]}}, 3.26),
    ({"structured_outputs": {"choice": ["a" * 40 + f"{i:012}" for i in range(4_000)]}}, 9.51),
    ({"structured_outputs": {"choice": ["a" * 10 + f"{i:012}" for i in range(4_000)]}}, 0.87),
    (schema({"anyOf": [{"properties": {f"a{i}": {"type": "integer", "multipleOf": 3}}} for i in range(1_000)]}), 1.70),
    ({"structured_outputs": {"regex": "[a-z]{1,100}"}}, 1.02),
    ({"structured_outputs": {"regex": "a?" * 100}}, 1.5),
    ({"structured_outputs": {"regex": "(a|)" * 100}}, 1.5),
    (schema({"type": "string", "pattern": "a?" * 100}), 1.5),
    ({"structured_outputs": {"regex": "(?:a" + "bc?d?e?" * 33 + ")x"}}, 0.5),
    ({"structured_outputs": {"regex": "-".join(["[a-z]+"] * 100)}}, 0.27),
    (schema({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(800)}}), 1.91),
    (
        schema(
            {"type": "object", "properties": {"e": {"type": "object", "additionalProperties": True}}} | {"$defs": {}}
        ),
        0.1,
    ),
]


@pytest.mark.parametrize(("fields", "measured_s"), MEASURED)
def test_the_estimate_is_near_what_was_measured_and_not_far_below(fields: dict[str, Any], measured_s: float) -> None:
    compiling = prepared(**fields).compiling
    estimated = compiling.cost_s if compiling else FREE_S
    assert 0.9 * measured_s <= estimated <= max(4 * measured_s, FREE_S)


@pytest.mark.parametrize(
    "fields", [lengths(20, 200), {"structured_outputs": {"grammar": RULES.replace("r0 ", "root ", 1)}}]
)
def test_what_would_compile_for_longer_than_one_caller_may_is_a_400(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        prepared(**fields)
    assert (refused.value.status, refused.value.code, refused.value.param) == (
        400,
        "value_too_large",
        next(iter(fields)),
    )
    assert "at most 60 s" in refused.value.message


@pytest.mark.parametrize("hidden", ['q ::= ["]\n', '# "\n', "# it's\n", r'q ::= [\]"] "\""' + "\n"])
def test_nothing_in_a_grammar_hides_the_rest(hidden: str) -> None:
    rules = RULES.replace("r0 ", "root ", 1)[:5_000]
    plain, behind = (prepared(structured_outputs={"grammar": text}).compiling for text in (rules, hidden + rules))
    assert plain and behind
    assert behind.cost_s >= plain.cost_s > 1


@pytest.mark.parametrize("regex", ["a?" * 5_000, "(a|)" * 5_000, "(?:a" + "bc?" * 4_000 + ")x", "a{0,1}" * 900])
def test_thousands_of_things_that_may_lack_are_a_400(regex: str) -> None:
    for fields in ({"structured_outputs": {"regex": regex}}, schema({"type": "string", "pattern": regex})):
        with pytest.raises(RequestError) as refused:
            prepared(**fields)
        assert refused.value.code == "value_too_large"


def test_an_ordinary_schema_with_many_lengths_waits_and_is_not_refused() -> None:
    texts = {
        f"a{most}": {"type": "string", "maxLength": most} for most in (50, 100, 120, 255, 500, 1_000, 2_000, 4_000)
    }
    assert prepared(**schema({"type": "object", "properties": texts})).compiling is not None


def test_the_same_schema_is_the_same_and_another_is_another() -> None:
    first, again, other = (prepared(**lengths(1, most), user=str(most)).compiling for most in (100, 100, 101))
    assert first and again and other
    assert first.key == again.key != other.key


# -- tools: only those that the model is held to are compiled --


def tool(name: str, most: int, **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"a": {"type": "string", "maxLength": most}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("a", 255), tool("b", 1_000), tool("c", 2_000), tool("d", 20)]


@pytest.mark.parametrize("choice", [{}, {"tool_choice": "auto"}, {"tool_choice": "none"}, {"tool_choice": None}])
def test_tools_that_may_be_called_cost_nothing(choice: dict[str, Any]) -> None:
    assert prepared(tools=TOOLS, **choice).compiling is None


def test_a_tool_that_must_be_called_is_compiled_and_no_other() -> None:
    every = prepared(tools=TOOLS, tool_choice="required").compiling
    named = prepared(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "d"}}).compiling
    alone = prepared(tools=TOOLS[-1:], tool_choice="required").compiling
    assert every and named and alone
    assert every.cost_s > 3 * named.cost_s
    assert named.cost_s == alone.cost_s


def test_one_strict_tool_has_the_others_compiled_unless_they_say_no() -> None:
    strict = tool("e", 20, strict=True)
    both = prepared(tools=[TOOLS[0], strict]).compiling
    one = prepared(tools=[tool("a", 255, strict=False), strict]).compiling
    assert both and one
    assert both.cost_s > 2 * one.cost_s
    assert prepared(tools=[tool("a", 255, strict=False)]).compiling is None
    assert prepared(tools=[strict], tool_choice="none").compiling is None


def test_tools_of_responses_are_named_and_strict_without_a_function_around() -> None:
    flat = [{"type": "function"} | made["function"] for made in TOOLS]

    def cost_s(**fields: Any) -> float:
        body = json.dumps({"model": "m", "input": "hi", "tools": flat, **fields}).encode()
        compiling = Preparer({"m": Served("m", "m")}, Caps()).prepare(Route.RESPONSES, body, "salt").compiling
        return compiling.cost_s if compiling else 0.0

    assert cost_s() == 0.0
    assert 0 < cost_s(tool_choice={"type": "function", "name": "d"}) < cost_s(tool_choice="required")
    flat[3]["strict"] = True
    assert cost_s() == cost_s(tool_choice="required")


# -- who may --


@pytest.mark.anyio
async def test_seconds_are_bounded_for_each_caller_and_in_total() -> None:
    compilations = Compilations(each_s=10, total_s=15, queue=10, wait_s=60)
    first = await compilations.enter(A, Compiling(b"1", 8))
    second = asyncio.create_task(compilations.enter(A, Compiling(b"2", 8)))  # over A's own
    other = await compilations.enter(B, Compiling(b"3", 7))  # passes it: 15 in total
    third = asyncio.create_task(compilations.enter(C, Compiling(b"4", 1)))  # over the total
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
    compilations = Compilations(10, 10, 10, 60)
    leave = await compilations.enter(A, Compiling(b"1", 8))
    same = [asyncio.create_task(compilations.enter(caller, Compiling(b"1", 8))) for caller in (A, B)]
    await asyncio.sleep(0)
    assert leave
    leave.answered()
    assert await asyncio.gather(*same) == [None, None]
    assert not compilations.needs_leave(Compiling(b"1", 8))
    assert compilations.total == 0


@pytest.mark.anyio
async def test_cheap_ones_pass_one_that_does_not_fit_the_total_but_not_for_ever() -> None:
    compilations = Compilations(10, 10, 100, 60)
    first = await compilations.enter(A, Compiling(b"1", 6))
    large = asyncio.create_task(compilations.enter(B, Compiling(b"2", 9)))
    await asyncio.sleep(0)
    passed = 0
    while passed < 100:
        small = asyncio.create_task(compilations.enter(C, Compiling(b"3", 1)))
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
async def test_what_the_engine_does_not_keep_needs_leave_each_time() -> None:
    numbers = {f"a{i}": {"type": "integer", "multipleOf": 3} for i in range(400)}
    compiling = prepared(**schema({"type": "object", "properties": numbers})).compiling
    assert compiling
    compilations = Compilations(10, 10, 10, 60)
    leave = await compilations.enter(A, compiling)
    assert leave
    leave.answered()
    assert compilations.total == 0
    assert compilations.needs_leave(compiling)


@pytest.mark.anyio
async def test_a_wait_ends_in_a_429_with_a_time() -> None:
    compilations = Compilations(10, 10, 10, 0.01)
    await compilations.enter(A, Compiling(b"1", 8))
    with pytest.raises(RequestError) as refused:
        await compilations.enter(B, Compiling(b"2", 8))
    assert (refused.value.status, refused.value.code, refused.value.retry_after_s) == (429, "compile_busy", 8)


@pytest.mark.anyio
async def test_no_caller_fills_the_line() -> None:
    compilations = Compilations(10, 10, 100, 60)
    await compilations.enter(A, Compiling(b"0", 8))
    waiting = [asyncio.create_task(compilations.enter(A, Compiling(bytes([i]), 8))) for i in range(1, 17)]
    await asyncio.sleep(0)
    with pytest.raises(RequestError):
        await compilations.enter(A, Compiling(b"x", 8))
    other = asyncio.create_task(compilations.enter(B, Compiling(b"y", 8)))
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
        compilations = Compilations(each_s=10, total_s=15, queue=100, wait_s=60)
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
                tasks.append(asyncio.create_task(compilations.enter(caller, Compiling(bytes([number]), cost_s))))
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


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_leaving_does_not_give_the_seconds_back(wrapper: Wrapper, path: str) -> None:
    """The engine compiles on; so a client that leaves, or whose stream has only begun, has still used its share."""
    await compiling_engine(wrapper, asyncio.Event())
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "stream": True, **lengths(1, 100)}
    if path == "/v1/responses":
        text = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "string", "maxLength": 100}}}
        asked = {"model": "tiny", "input": "hi", "stream": True, "text": text}
    task = asyncio.create_task(wrapper.http.post(path, json=asked))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
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
    asked: dict[str, Any] = {"model": "tiny", "messages": USER, "stream": True, **lengths(1, 100)}
    if path == "/v1/responses":
        text = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "string", "maxLength": 100}}}
        asked = {"model": "tiny", "input": "hi", "stream": True, "text": text}
    task = asyncio.create_task(wrapper.http.post(path, json=asked))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
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
