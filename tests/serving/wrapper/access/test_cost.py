"""What a request may cost holds for everybody. F7 and F13 are findings of the attack on the wrapper (issue 11)."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.access.limits import Limit
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.prepare import Prepared, Preparer, Served
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import MakeWrapper
from tests.serving.wrapper.fake_engine import MODEL, Received, Reply

USER = [{"role": "user", "content": "hi"}]
ASKED: dict[Route, dict[str, Any]] = {
    Route.CHAT: {"messages": USER},
    Route.COMPLETIONS: {"prompt": "hi"},
    Route.RESPONSES: {"input": "hi"},
}
WRITTEN = {
    Route.CHAT: "max_completion_tokens",
    Route.COMPLETIONS: "max_tokens",
    Route.RESPONSES: "max_output_tokens",
}


def prepare(route: Route, body: dict[str, Any], cap: int = 32_768, **served: Any) -> Prepared:
    preparer = Preparer({"m": Served("m", "m", **served)}, Caps(output_tokens=cap))
    return preparer.prepare(route, json.dumps({"model": "m", **body}).encode(), "salt")


def most(prepared: Prepared, route: Route) -> int | None:
    written: int | None = json.loads(prepared.body).get(WRITTEN[route])
    return written


@pytest.mark.anyio
@pytest.mark.parametrize("route", WRITTEN)
@pytest.mark.parametrize("limit", ["the wrapper's", "the model's", "the product's"])
async def test_f13_a_cap_on_output_holds_for_those_who_name_none(
    make_wrapper: MakeWrapper, route: Route, limit: str
) -> None:
    limits: dict[str, dict[str, Any]] = {
        "the wrapper's": {"limits": {"output_tokens": 5}},
        "the model's": {"models": {MODEL: {"max_output_tokens": 5}}},
        "the product's": {"products": {"team": {"max_output_tokens": 5}}},
    }
    config = limits[limit]
    wrapper = await make_wrapper(**config)
    headers = {"x-huddle-product": "team"} if "products" in config else {}
    await wrapper.http.post(route.value, json={"model": MODEL, **ASKED[route]}, headers=headers)
    assert [request.json[WRITTEN[route]] for request in wrapper.engine.completions] == [5]


@pytest.mark.parametrize("route", [Route.CHAT, Route.RESPONSES])
def test_while_the_context_is_unknown_only_a_cap_that_somebody_chose_is_written(route: Route) -> None:
    """An engine with a smaller context would refuse the wrapper's default."""
    assert most(prepare(route, ASKED[route]), route) is None
    assert most(prepare(route, ASKED[route], 4_096), route) == 4_096
    assert most(prepare(route, ASKED[route], max_output_tokens=32_768), route) == 32_768


@pytest.mark.parametrize("route", WRITTEN)
def test_f13_what_is_written_is_what_is_reserved(route: Route) -> None:
    named = prepare(route, {**ASKED[route], WRITTEN[route]: 12}, max_model_len=4096)
    unnamed = prepare(route, ASKED[route], cap=12, max_model_len=4096)
    assert json.loads(unnamed.body) == json.loads(named.body)
    assert unnamed.reserve_tokens == named.reserve_tokens


def test_what_a_client_names_within_the_cap_stays_as_it_is() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        body = json.loads(prepare(Route.CHAT, {"messages": USER, name: 3}, cap=5).body)
        assert {key: value for key, value in body.items() if key.startswith("max")} == {name: 3}


def test_a_cap_that_the_context_is_below_is_not_written() -> None:
    """vLLM refuses a number above the context, and stops at the context by itself."""
    assert most(prepare(Route.CHAT, {"messages": USER}, cap=4096, max_model_len=4096), Route.CHAT) is None
    assert most(prepare(Route.CHAT, {"messages": USER}, cap=4095, max_model_len=4096), Route.CHAT) is not None


def test_a_cap_leaves_the_context_that_the_prompt_needs() -> None:
    """vLLM 0.26.0 refuses a request whose prompt and maximum together are more than the context."""
    for size in range(1_000, 20_000, 500):
        text = "x" * size
        for route, fields in (
            (Route.CHAT, {"messages": [{"role": "user", "content": text}]}),
            (Route.RESPONSES, {"input": text}),
        ):
            written = most(prepare(route, fields, cap=3_000, max_model_len=4096), route)
            assert written is not None
            assert 4096 // 8 <= written <= 3_000
            assert written + size / 4 <= 4096 or written == 4096 // 8  # English has four bytes a token and more


# -- a request weighs its sequences --


def test_a_request_weighs_its_inputs_times_its_choices() -> None:
    def weight(route: Route, **fields: Any) -> int:
        return prepare(route, fields).sequences

    assert weight(Route.CHAT, messages=USER) == 1
    assert weight(Route.CHAT, messages=USER, n=8) == 8
    assert weight(Route.COMPLETIONS, prompt=["a", "b", "c"], n=2) == 6
    assert weight(Route.COMPLETIONS, prompt=[[1, 2], [3]]) == 2
    assert weight(Route.COMPLETIONS, prompt=[1, 2, 3]) == 1
    assert weight(Route.EMBEDDINGS, input=["a"] * 7) == 7
    assert weight(Route.RESPONSES, input="hi") == 1


HEAVY = {"model": MODEL, "prompt": [[1, 2, 3]] * 1024, "n": 8, "max_tokens": 64, "stream": True}
"""F7, as it fell: 8,192 sequences in 11 KB."""


async def never(request: Received, reply: Reply) -> None:
    await reply.stream_head()
    await reply.closed_by_peer()


@pytest.mark.anyio
async def test_f7_a_request_heavier_than_a_callers_share_says_the_bound(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(prompt=None, products={"team": {}})
    headers = {"x-huddle-product": "team", "x-huddle-tenant": "a"}
    answer = await wrapper.http.post("/v1/completions", json=HEAVY, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "prompt")
    assert "8192 sequences" in error["message"]
    assert "at most 512 may run at once" in error["message"]
    assert wrapper.engine.completions == []


@pytest.mark.anyio
async def test_f7_max_concurrency_of_a_key_counts_sequences(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    product = {"keys": [{"name": "alice", "sha256": digest}], "max_concurrency": 4, "tokens_per_minute": 10_000}
    wrapper = await make_wrapper(prompt=None, products={"team": product})
    wrapper.engine.script = never
    async with wrapper.client(key) as client:

        async def ask(inputs: int) -> httpx.Response:
            body = {**HEAVY, "n": 1, "prompt": [[1]] * inputs}
            return await client.post("/v1/completions", json=body)

        too_heavy = await ask(5)
        assert (too_heavy.status_code, too_heavy.json()["error"]["code"]) == (400, "request_exceeds_quota")
        running = asyncio.create_task(ask(3))
        await wrapper.until(lambda: wrapper.service.admission.running == 3)
        assert (await ask(2)).status_code == 429
        running.cancel()
    await wrapper.until(lambda: wrapper.service.running == 0)
    subscriber = wrapper.service._subscribers["team", "alice"]
    assert subscriber.used(Limit.CONCURRENCY, wrapper.service.clock()) == 0


@pytest.mark.anyio
async def test_a_large_batch_of_embeddings_takes_all_that_its_caller_may_have(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    product = {"keys": [{"name": "alice", "sha256": digest}], "max_concurrency": 4}
    wrapper = await make_wrapper(prompt=None, products={"team": product})
    async with asyncio.TaskGroup() as group:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def held(request: Received, reply: Reply) -> None:
            reached.set()
            await go_on.wait()
            await reply.json({"object": "list", "data": [], "usage": {"prompt_tokens": 1000, "total_tokens": 1000}})

        wrapper.engine.script = held
        body = {"model": MODEL, "input": ["text"] * 1000}  # what LangChain sends at a time
        async with wrapper.client(key) as client:
            answer = group.create_task(client.post("/v1/embeddings", json=body))
            await reached.wait()
            assert wrapper.service.admission.running == 512
            assert (await client.post("/v1/embeddings", json={**body, "input": "text"})).status_code == 429
            go_on.set()
            assert (await answer).status_code == 200
    subscriber = wrapper.service._subscribers["team", "alice"]
    assert subscriber.used(Limit.CONCURRENCY, wrapper.service.clock()) == 0


@pytest.mark.anyio
async def test_f7_one_tenant_behind_the_gateway_leaves_places_to_the_others(make_wrapper: MakeWrapper) -> None:
    limits = {"concurrency": 8, "caller_share": 0.5, "queue": 8}
    wrapper = await make_wrapper(prompt=None, products={"team": {}}, limits=limits)
    wrapper.engine.script = never

    def ask(tenant: str, inputs: int) -> "asyncio.Task[httpx.Response]":
        headers = {"x-huddle-product": "team", "x-huddle-tenant": tenant}
        body = {**HEAVY, "n": 1, "prompt": [[1]] * inputs}
        return asyncio.create_task(wrapper.http.post("/v1/completions", json=body, headers=headers))

    tasks = [ask("greedy", 4), ask("greedy", 4), ask("greedy", 4)]
    try:
        await wrapper.until(lambda: wrapper.service.admission.waiting == 8)
        tasks += [ask("other", 1), ask("third", 3)]
        await wrapper.until(lambda: len(wrapper.engine.completions) == 3)
        assert (wrapper.service.admission.running, wrapper.service.admission.waiting) == (8, 8)
        assert "huddle_wrapper_in_flight 8.0" in wrapper.metrics()
        assert "huddle_wrapper_queue_length 8.0" in wrapper.metrics()
    finally:
        for task in tasks:
            task.cancel()
    admission = wrapper.service.admission
    await wrapper.until(lambda: (admission.running, admission.waiting) == (0, 0))


@pytest.mark.anyio
async def test_f7_a_full_line_has_room_for_who_has_nothing_in_it(make_wrapper: MakeWrapper) -> None:
    limits = {"concurrency": 2, "caller_share": 0.5, "queue": 4}
    wrapper = await make_wrapper(prompt=None, products={"team": {}}, limits=limits)
    wrapper.engine.script = never

    def ask(tenant: str) -> "asyncio.Task[httpx.Response]":
        headers = {"x-huddle-product": "team", "x-huddle-tenant": tenant}
        body = {**HEAVY, "n": 1, "prompt": "hi"}
        return asyncio.create_task(wrapper.http.post("/v1/completions", json=body, headers=headers))

    inside = [ask("other"), ask("flood")]
    await wrapper.until(lambda: wrapper.service.admission.running == 2)
    flood = [ask("flood") for _ in range(6)]  # one waits for its own share, four behind it
    await wrapper.until(lambda: sum(task.done() for task in flood) == 1)
    newcomers = [ask("other"), ask("other")]  # the second costs the flood one
    await wrapper.until(lambda: sum(task.done() for task in flood) == 2)
    refused = [task.result() for task in flood if task.done()]
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in refused} == {(429, "engine_busy")}
    assert not any(task.done() for task in newcomers)
    for task in (*inside, *flood, *newcomers):
        task.cancel()
    admission = wrapper.service.admission
    await wrapper.until(lambda: (admission.running, admission.waiting) == (0, 0))
