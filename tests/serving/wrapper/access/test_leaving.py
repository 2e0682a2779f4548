"""Who leaves, or is left, before the engine has said the usage pays for what came, or what nobody can rule out."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.access.limits import Limit
from tests.serving.wrapper.access.test_limits import product
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import DONE, MODEL, USAGE_EVENT, Received, Reply, Script, event, streaming, token
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio
LEFT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 700}


def used(wrapper: Wrapper) -> int:
    return wrapper.service._subscribers[("team", "alice")].used(Limit.TOKENS_PER_MINUTE, wrapper.service.clock())


async def charged_for_leaving(wrapper: Wrapper, client: httpx.AsyncClient, sent: Sequence[bytes], **fields: Any) -> int:
    """What a key is charged that leaves once it has got the `sent` events; the engine has told of a whole stream."""
    begun = asyncio.Event()

    async def to_the_end(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("") + b"".join(token(f"t{i}") for i in range(5)) + USAGE_EVENT + DONE)
        await reply.end()

    async def on_and_on(_: Received, reply: Reply) -> None:
        if sent:
            await reply.stream_head()
        for each in sent:
            await reply.chunk(each)
        begun.set()
        await reply.closed_by_peer()

    wrapper.engine.script = to_the_end
    await client.post("/v1/chat/completions", json=LEFT | {"stream": True})
    before, wrapper.engine.script = used(wrapper), on_and_on
    assert before == 16
    leaving = asyncio.create_task(read(client, b"".join(sent), LEFT | fields))
    await asyncio.wait_for(begun.wait(), scaled(10))
    if not sent:
        leaving.cancel()
    await asyncio.wait([leaving])
    await wrapper.until(lambda: wrapper.service.running == 0)
    return used(wrapper) - before


async def read(client: httpx.AsyncClient, wanted: bytes, body: dict[str, Any]) -> None:
    got = b""
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for chunk in answer.aiter_raw():
            got += chunk
            if got == wanted:
                return


async def test_leaving_before_the_usage_is_charged_as_far_as_it_came(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))
    async with wrapper.client(key) as client:
        came = [token(""), token("one"), token("two"), token("three")]
        assert await charged_for_leaving(wrapper, client, came, stream=True) == 11 + 3
    assert 'estimated_tokens_total{kind="completion"} 3.0' in wrapper.metrics()


async def test_leaving_before_the_first_token_is_charged_the_prompt(make_wrapper: MakeWrapper) -> None:
    """The engine counts a prompt with its first token, and so do the metrics; a limit must not be had for nothing."""
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))
    async with wrapper.client(key) as client:
        assert await charged_for_leaving(wrapper, client, [], stream=True) == 11
    assert 'tokens_total{kind="prompt",model="tiny",product="team"} 11.0' in wrapper.metrics()


async def test_leaving_a_plain_answer_is_charged_as_declared(make_wrapper: MakeWrapper) -> None:
    """Nobody can say how far it had come."""
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))
    async with wrapper.client(key) as client:
        assert 700 < await charged_for_leaving(wrapper, client, []) < 900


CAME = token("") + token("one") + token("two") + token("three")


async def left_by_the_engine(make_wrapper: MakeWrapper, script: Script) -> Wrapper:
    """A wrapper after a key's stream that the engine did not bring to its end."""
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))
    wrapper.engine.script = script
    async with wrapper.client(key) as client:
        with contextlib.suppress(httpx.RemoteProtocolError):
            await client.post("/v1/chat/completions", json=LEFT | {"stream": True})
    await wrapper.until(lambda: wrapper.service.running == 0)
    return wrapper


async def test_an_error_inside_of_a_stream_is_charged_as_far_as_it_came(make_wrapper: MakeWrapper) -> None:
    wrapper = await left_by_the_engine(make_wrapper, streaming(CAME, event({"error": {"code": 500}}), DONE))
    assert 3 < used(wrapper) < 200
    assert 'tokens_total{kind="completion",model="tiny",product="team"} 3.0' in wrapper.metrics()


async def test_an_engine_that_breaks_off_is_counted_and_not_charged(make_wrapper: MakeWrapper) -> None:
    async def script(_: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(CAME)
        reply.writer.close()

    wrapper = await left_by_the_engine(make_wrapper, script)
    assert used(wrapper) == 0
    assert 'tokens_total{kind="completion",model="tiny",product="team"} 3.0' in wrapper.metrics()
