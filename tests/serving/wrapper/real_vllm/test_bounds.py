"""What would take too much of the engine does not reach it; what is just within the bounds does."""

from typing import Any

import pytest

from huddle import versions
from huddle.wrapper.body.caps import Caps
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.constructs import REFUSED, SERVED
from tests.serving.wrapper.real_vllm.conftest import USER
from tests.serving.wrapper.tap import Tap
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio


async def test_a_schema_that_would_end_the_engine_does_not_reach_it(wrapped: Wrapper, tap: Tap) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 10**9}
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = await wrapped.chat(messages=USER, response_format=asked)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "response_format")
    assert not [request for request in tap.requests if request.path == "/v1/chat/completions"]
    schema["minItems"] = 10_000
    assert (await wrapped.chat(messages=USER, max_tokens=2, response_format=asked)).status_code == 200


def with_properties(count: int, inside: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": inside for i in range(count)}}


AT_THE_BOUND: dict[str, dict[str, Any]] = {  # properties in objects of fifty; all in one is beyond the bound on time
    "properties": with_properties(Caps().schema_properties // 51, with_properties(50, {"type": "string"})),
    "choices": {"type": "string", "enum": [f"value-{i}" for i in range(Caps().schema_choices)]},
    "alternatives": {"anyOf": [{"const": f"c{i}"} for i in range(Caps().schema_alternatives)]},
}


@pytest.mark.parametrize("bound", AT_THE_BOUND)
async def test_what_is_just_within_a_bound_is_compiled(wrapped: Wrapper, bound: str) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": AT_THE_BOUND[bound]}}
    answer = await wrapped.chat(messages=USER, max_tokens=2, response_format=asked)
    assert answer.status_code == 200, answer.text


async def test_f13_a_cap_on_output_holds_for_those_who_name_none(make_wrapper: MakeWrapper, tap: Tap) -> None:
    wrapper = await make_wrapper(tap, models={"tiny": {"max_output_tokens": 5}}, timeouts={"total_s": 300})
    await wrapper.until(lambda: wrapper.service.engines.problem is None, 60)
    asked = {
        "/v1/chat/completions": {"messages": USER},
        "/v1/completions": {"prompt": "Once"},
        "/v1/responses": {"input": "Hi."},
    }
    for path, said in asked.items():
        body = {"model": "tiny", "ignore_eos": True, **said}
        usage = (await wrapper.http.post(path, json=body, timeout=scaled(120))).json()["usage"]
        assert usage.get("completion_tokens", usage.get("output_tokens")) == 5, path


@pytest.mark.parametrize("case", REFUSED)
async def test_what_the_engine_cannot_compile_is_the_clients_fault(
    wrapped: Wrapper, engine_version: str, case: str
) -> None:
    """Another engine than the nodes' may be able to; none fails."""
    answer = await wrapped.chat(messages=USER, max_tokens=2, **REFUSED[case])
    able = () if engine_version == versions.load().engine.vllm else (200,)
    assert answer.status_code in (400, *able), answer.text
    if answer.status_code == 400:  # and says what cannot be compiled
        assert answer.json()["error"]["message"] != "the engine does not accept the request"


@pytest.mark.parametrize("case", SERVED)
async def test_what_the_engine_can_compile_passes(wrapped: Wrapper, engine_version: str, case: str) -> None:
    answer = await wrapped.chat(messages=USER, max_tokens=2, **SERVED[case])
    refusing = () if engine_version == versions.load().engine.vllm else (400,)
    assert answer.status_code in (200, *refusing), answer.text
