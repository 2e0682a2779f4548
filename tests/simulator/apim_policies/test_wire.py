"""The gateway in front of the real wrapper program: streams unbuffered, keys kept, products apart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from huddle.headers import BACKEND_KEY_HEADER
from tests.serving.wrapper.fake_engine import DONE, Received, Reply, saying, token
from tools.deadlines import scaled

from .lab import BACKEND_KEY, KEY, MODEL, OTHER_KEY
from .wire import Wire, wire

pytestmark = pytest.mark.anyio
HEADER = "Ocp-Apim-Subscription-Key"


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


@pytest.mark.parametrize("asked", [True, False], ids=["usage asked for", "usage not asked for"])
async def test_a_quota_bites_streams_and_plain_answers_alike(line: Wire, http: httpx.AsyncClient, asked: bool) -> None:
    """To the token where the client asks for the usage; else within the gateway's estimate of what it saw."""
    options = {"stream_options": {"include_usage": True}} if asked else {}
    left = []
    for fields in ({}, {"stream": True, **options}):
        line.gateway.environment.counters.held.clear()
        await http.post("/v1/chat/completions", json=chat(max_tokens=5, **fields))
        probe = await http.post("/v1/completions", json={"model": MODEL, "prompt": ""})
        left.append(int(probe.headers["X-RateLimit-Remaining-Quota-Tokens"]))
    plain, streamed = (3_000 - each for each in left)
    assert plain == 16, "what the engine counted"
    if asked:
        assert streamed == plain
    else:
        prompt, answer = 5, 4  # "hi" and its message; "t0 t1 t2 t3 t4 ", at four bytes a token
        assert streamed == prompt + answer
