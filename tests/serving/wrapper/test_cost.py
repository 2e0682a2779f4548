"""What a request may cost holds for everybody. F7 and F13 are findings of the attack on the wrapper (issue 11)."""

import json
from typing import Any

import pytest

from huddle.wrapper.body.fields import Caps
from huddle.wrapper.body.prepare import Prepared, Preparer, Served
from huddle.wrapper.routes import Route

from .conftest import MakeWrapper
from .fake_engine import MODEL

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
