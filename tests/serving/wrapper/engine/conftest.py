"""OpenAI's own client in front of a wrapper."""

from collections.abc import AsyncIterator

import openai
import pytest

from tests.serving.wrapper.conftest import BACKEND_KEY, Wrapper


@pytest.fixture
async def sdk(wrapper: Wrapper) -> AsyncIterator[openai.AsyncOpenAI]:
    headers = {"x-backend-key": BACKEND_KEY}
    base = f"http://127.0.0.1:{wrapper.port}/v1"
    async with openai.AsyncOpenAI(base_url=base, api_key="x", default_headers=headers, max_retries=0) as client:
        yield client
