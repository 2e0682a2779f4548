"""The engine as its callers meet it: with caches of their own, and with OpenAI's client."""

import asyncio

import openai
import pytest

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.access.limits import Limit
from tests.serving.wrapper.conftest import BACKEND_KEY, MakeWrapper
from tests.serving.wrapper.real_vllm.conftest import USER, RealEngine
from tests.serving.wrapper.tap import Tap

pytestmark = pytest.mark.anyio


async def test_tenants_do_not_share_the_prefix_cache(
    make_wrapper: MakeWrapper, real_vllm: RealEngine, tap: Tap
) -> None:
    wrapper = await make_wrapper(tap, models={"tiny": {}}, products={"team": {}})
    long = [{"role": "user", "content": "All of this is the same for everybody. " * 30}]

    async def hits(tenant: str) -> float:
        before = await asyncio.to_thread(real_vllm.metric, "vllm:prefix_cache_hits_total")
        headers = {"x-huddle-product": "team", "x-huddle-tenant": tenant}
        answer = await wrapper.chat(messages=long, max_tokens=1, headers=headers, cache_salt="theirs")
        assert answer.status_code == 200
        return await asyncio.to_thread(real_vllm.metric, "vllm:prefix_cache_hits_total") - before

    names = [f"{tenant}-{id(tap)}" for tenant in ("a", "b")]  # not seen by this engine before
    assert await hits(names[0]) == 0
    assert await hits(names[0]) > 0
    assert await hits(names[1]) == 0


async def test_the_openai_sdk_and_the_books_agree(make_wrapper: MakeWrapper, real_vllm: RealEngine, tap: Tap) -> None:
    key, digest = new_key()
    products = {"team": {"tokens_per_minute": 100_000, "keys": [{"name": "alice", "sha256": digest}]}}
    wrapper = await make_wrapper(tap, models={"tiny": {}, "tiny-alias": {}}, products=products)
    await wrapper.until(lambda: wrapper.service.engines.problem is None, 30)
    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{wrapper.port}/v1", api_key=key, max_retries=0)
    assert [model.id async for model in client.models.list()] == ["tiny", "tiny-alias"]
    plain = await client.chat.completions.create(model="tiny", messages=USER, max_tokens=7)
    assert plain.usage is not None
    stream = await client.chat.completions.create(model="tiny-alias", messages=USER, max_tokens=7, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    assert {chunk.model for chunk in chunks} == {"tiny"}  # the engine's own first name: its bytes are not touched
    await wrapper.until(lambda: wrapper.service.running == 0)
    used = wrapper.service._subscribers["team", "alice"].used(Limit.TOKENS_PER_MINUTE, wrapper.service.clock())
    lines = wrapper.request_lines()
    assert used == sum(line["prompt_tokens"] + line["completion_tokens"] for line in lines)
    assert lines[0]["prompt_tokens"] == lines[1]["prompt_tokens"] == plain.usage.prompt_tokens
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key=BACKEND_KEY).models.list()
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="other", messages=USER)
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="tiny", messages=[])
    await client.close()
