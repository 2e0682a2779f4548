"""The engine's own lists: what it says of itself, and which of its routes the wrapper lets through."""

import json

import httpx
import pytest

from tests.serving.wrapper.conftest import Wrapper
from tests.serving.wrapper.real_vllm.conftest import RealEngine
from tools import engines
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio


def test_the_record_is_what_this_engine_says_of_itself(engine_version: str) -> None:
    """So what lint and the launcher read there is true: options, variables, and the fields of requests."""
    kept = engines.RECORDS / f"vllm-{engine_version}.json"
    assert json.loads(engines.ask(engine_version)) == json.loads(kept.read_text(encoding="utf-8"))


async def test_only_the_allow_list_answers(wrapped: Wrapper, real_vllm: RealEngine) -> None:
    """Every route that the running engine has, asked for through the wrapper with a good key."""
    async with httpx.AsyncClient(base_url=real_vllm.url, timeout=scaled(60)) as direct:
        document = (await direct.get("/openapi.json")).json()
    paths = {path.replace("{response_id}", "resp_1") for path in document["paths"]}
    paths |= {"/metrics", "/docs", "/redoc", "/openapi.json", "/load"}  # not in its own document
    assert len(paths) > 20
    answered = set()
    for path in sorted(paths):
        for method in ("GET", "POST"):
            answer = await wrapped.http.request(method, path, json={} if method == "POST" else None)
            if answer.status_code != 404:
                answered.add(path)
    assert answered == {"/v1/models", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/health"}
