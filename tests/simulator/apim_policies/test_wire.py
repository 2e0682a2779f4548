"""The gateway in front of the real wrapper program: streams unbuffered, keys kept, products apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from huddle.headers import BACKEND_KEY_HEADER
from tests.serving.wrapper.fake_engine import (
    DONE,
    USAGE_EVENT,
    Received,
    Reply,
    event,
    polite,
    saying,
    streaming,
    token,
)
from tools.deadlines import scaled

from .lab import BACKEND_KEY, KEY, MODEL, OTHER_KEY
from .wire import Wire, wire

pytestmark = pytest.mark.anyio
HEADER = "Ocp-Apim-Subscription-Key"
ENDING = event(
    {
        "id": "x",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": "t1"}, "finish_reason": "stop"}],
    }
)


@pytest.fixture
async def line(tmp_path: Path) -> AsyncIterator[Wire]:
    async with wire(tmp_path) as made:
        yield made


@pytest.fixture
async def http(line: Wire) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=line.url, headers={HEADER: KEY}, timeout=scaled(60)) as client:
        yield client


def chat(model: str = MODEL, **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}


async def test_each_piece_arrives_before_the_next_is_sent(line: Wire, http: httpx.AsyncClient) -> None:
    seen = asyncio.Queue[None]()

    async def one_at_a_time(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        for number in range(20):
            await reply.chunk(token(f"t{number} "))
            await asyncio.wait_for(seen.get(), scaled(30))
        await reply.chunk(DONE)
        await reply.end()

    line.engine.script = one_at_a_time
    got = b""
    async with http.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as response:
        async for chunk in response.aiter_raw():
            got += chunk
            if chunk != DONE:
                seen.put_nowait(None)
    assert got == b"".join(token(f"t{number} ") for number in range(20)) + DONE


async def test_an_answer_is_byte_for_byte_the_wrappers(line: Wire, http: httpx.AsyncClient) -> None:
    said = {"choices": [{"message": {"content": "é→ " * 100_000}}], "usage": {"prompt_tokens": 1, "total_tokens": 2}}
    line.engine.script = saying({"object": "chat.completion", **said})
    direct = await http.post(
        f"{line.direct}/v1/chat/completions", json=chat(), headers={BACKEND_KEY_HEADER: BACKEND_KEY}
    )
    got = await http.post("/v1/chat/completions", json=chat())
    assert got.json()["choices"] == said["choices"]
    assert (got.status_code, got.content) == (200, direct.content)


async def test_a_client_that_leaves_frees_the_engine(line: Wire, http: httpx.AsyncClient) -> None:
    left = asyncio.Event()

    async def endless(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("begun"))
        await reply.closed_by_peer()
        left.set()

    line.engine.script = endless
    async with http.stream("POST", "/v1/chat/completions", json=chat(stream=True)) as response:
        assert await anext(response.aiter_raw())
    await asyncio.wait_for(left.wait(), scaled(30))


async def test_a_broken_stream_does_not_look_whole(line: Wire, http: httpx.AsyncClient) -> None:
    async def broken(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("begun"))
        reply.reset()

    line.engine.script = broken
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post("/v1/chat/completions", json=chat(stream=True))


async def test_a_key_in_the_query_opens_the_door_and_stays_outside(line: Wire, http: httpx.AsyncClient) -> None:
    got = await http.post(f"/v1/chat/completions?subscription-key={KEY}", json=chat(), headers={HEADER: ""})
    assert got.status_code == 200
    headers = {"api-key": KEY, "Authorization": f"Bearer {KEY}"}
    assert (await http.post("/v1/chat/completions", json=chat(), headers=headers)).status_code == 200
    assert len(line.engine.completions) == 2
    for request in line.engine.requests:
        assert KEY.encode() not in request.raw
    assert KEY not in line.wrapper_log.read_text()
    assert KEY not in "".join(line.log)
    assert json.loads(line.log[0])["url"] == "/v1/chat/completions?subscription-key=***"


async def test_a_products_key_calls_its_own_models_only(http: httpx.AsyncClient) -> None:
    own = {KEY: MODEL, OTHER_KEY: "hl"}
    for key, model in own.items():
        (other,) = set(own.values()) - {model}
        listed = (await http.get("/v1/models", headers={HEADER: key})).json()
        assert [entry["id"] for entry in listed["data"]] == [model]
        assert (await http.post("/v1/chat/completions", json=chat(model), headers={HEADER: key})).status_code == 200
        spoofed = {HEADER: key, "X-Huddle-Product": "batch", "X-Backend-Key": "guess-guess-guess-guess"}
        for headers in ({HEADER: key}, spoofed):
            refused = await http.post("/v1/chat/completions", json=chat(other), headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")


async def test_one_id_is_in_the_answer_and_in_the_nodes_log(line: Wire, http: httpx.AsyncClient) -> None:
    got = await http.post("/v1/chat/completions", json=chat(), headers={"X-Request-Id": "mine"})
    wanted = got.headers["X-Request-Id"]
    async with asyncio.timeout(scaled(30)):
        while not (found := [entry for entry in wrapper_log(line) if entry.get("request_id") == wanted]):
            await asyncio.sleep(0.02)
    assert (found[0]["product"], found[0]["tenant"], found[0]["via"]) == (
        "developers",
        "developers_playground",
        "gateway",
    )


def wrapper_log(line: Wire) -> list[dict[str, Any]]:
    return [json.loads(entry) for entry in line.wrapper_log.read_text().splitlines() if entry.startswith("{")]


async def test_nobody_gets_past_the_gateway(line: Wire) -> None:
    async with httpx.AsyncClient(base_url=line.direct, timeout=scaled(10)) as direct:
        for headers in ({}, {HEADER: KEY}, {"Authorization": f"Bearer {KEY}"}, {"X-Huddle-Product": "developers"}):
            assert (await direct.post("/v1/chat/completions", json=chat(), headers=headers)).status_code == 401


async def ends_its_choice(request: Received, reply: Reply) -> None:
    """A stream whose last event of a choice says why it ended, as vLLM's does; else a plain answer."""
    if request.json.get("stream"):
        await streaming(token("t0 "), ENDING, USAGE_EVENT, DONE)(request, reply)
    else:
        await polite(request, reply)


@pytest.mark.parametrize("asked", [True, False], ids=["usage asked for", "usage not asked for"])
async def test_a_quota_bites_streams_and_plain_answers_alike(line: Wire, http: httpx.AsyncClient, asked: bool) -> None:
    """To the token: a client that does not ask for its usage would be counted by the gateway's estimate."""
    options = {"stream_options": {"include_usage": True}} if asked else {}
    line.engine.script = ends_its_choice
    left = []
    for fields in ({}, {"stream": True, **options}):
        line.gateway.environment.counters.held.clear()
        await http.post("/v1/chat/completions", json=chat(max_tokens=5, **fields))
        probe = await http.post("/v1/completions", json={"model": MODEL, "prompt": ""})
        left.append(int(probe.headers["X-RateLimit-Remaining-Quota-Tokens"]))
    assert [3_000 - each for each in left] == [16, 16], "what the engine counted"


async def test_openais_sdk_meets_no_event_without_choices_unless_it_asks(line: Wire) -> None:
    """Its users write `chunk.choices[0]`, and some leave off at the reason why a choice ended."""
    line.engine.script = ends_its_choice
    messages: Any = [{"role": "user", "content": "hi"}]
    async with AsyncOpenAI(base_url=f"{line.url}/v1", api_key="unused", default_headers={HEADER: KEY}) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        chunks = [chunk async for chunk in stream]
        assert [chunk.choices[0].delta.content for chunk in chunks] == ["t0 ", "t1"]
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, "stop"]
        assert [chunk.usage and chunk.usage.total_tokens for chunk in chunks] == [None, 16]
        async with client.chat.completions.stream(model=MODEL, messages=messages) as helped:
            whole = await helped.get_final_completion()
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("t0 t1", "stop")
