"""A wrapper in front of the real engine, with a tap between them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.wrapper.conftest import PROMPT, MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import Received
from tests.serving.wrapper.tap import Tap

RealEngine = LocalService = Any  # the classes of tests/serving/conftest.py, which is no package
USER = [{"role": "user", "content": "Say something."}]


@pytest.fixture
async def tap(real_vllm: RealEngine) -> AsyncIterator[Tap]:
    tap = Tap(real_vllm.port)
    server = await asyncio.start_server(tap.handle, "127.0.0.1", 0)
    tap.port = server.sockets[0].getsockname()[1]
    yield tap
    server.close()


@pytest.fixture
async def wrapped(make_wrapper: MakeWrapper, tap: Tap, tmp_path: Path) -> Wrapper:
    (tmp_path / "prompt.txt").write_text(PROMPT)
    prompt = {"system_prompt_file": tmp_path / "prompt.txt", "prompt_id": "test-prompt"}
    wrapper = await make_wrapper(tap, models={"tiny": prompt}, timeouts={"total_s": 300})
    wrapper.http.timeout = httpx.Timeout(120)
    return wrapper


def last(tap: Tap) -> Received:
    return [request for request in tap.requests if request.path not in ("/health", "/v1/models")][-1]
