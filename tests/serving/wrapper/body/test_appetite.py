"""No value goes to the engine unjudged: every field of the policy, with values that it was not made for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.fields import SECTIONS, Action, field_policies
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.body.prompts import Prompt
from huddle.wrapper.body.shapes import Real, Whole
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route

BASE: dict[Route, dict[str, Any]] = {
    Route.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Route.COMPLETIONS: {"prompt": "hi"},
    Route.EMBEDDINGS: {"input": "hi"},
    Route.RESPONSES: {"input": "hi"},
}
VALUES: dict[str, Any] = {
    "negative": -1,
    "very negative": -(10**30),
    "zero": 0,
    "huge": 10**30,
    "beyond 64 bits": 2**63,
    "a float": 0.5,
    "a huge float": 1e300,
    "a tiny float": -1e300,
    "a flag": True,
    "a text": "x",
    "a long text": "x" * 70_000,
    "a list": [1],
    "huge numbers": [10**30],
    "many": ["x"] * 3_000,
    "nested": {"a": {"b": [10**30]}},
    "numbered": {"1": 10**30},
    "numbers by name": {str(10**30): 1},
    "deep": [[[[[[1]]]]]],
}
FIELDS = [
    (route, name)
    for route in SECTIONS
    for name, judged in field_policies(route).items()
    if judged.action in (Action.SHAPE, Action.SCHEMA, Action.HANDLED)
]


def sent(route: Route, fields: dict[str, Any]) -> dict[str, Any]:
    preparer = Preparer({"m": Served("m", "m", Prompt("p", "ours"), priority=0)}, Caps())
    body = json.dumps({"model": "m", **BASE[route], **fields}).encode()
    written: dict[str, Any] = json.loads(preparer.prepare(route, body, "salt").body)
    return written


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for held in value.values() for number in numbers(held)]
    if isinstance(value, list):
        return [number for held in value for number in numbers(held)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_no_field_passes_unjudged() -> None:
    assert [
        name for route in SECTIONS for name, judged in field_policies(route).items() if judged.action == "pass"
    ] == []


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("route", "name"), FIELDS)
def test_a_field_is_refused_or_within_its_range(route: Route, name: str, value: str) -> None:
    given = VALUES[value]
    try:
        reached = sent(route, {name: given}).get(name)
    except RequestError as refused:
        assert 400 <= refused.status < 500
        assert len(refused.body()) < 1_000
        return
    check = field_policies(route)[name].check
    if isinstance(check, Whole):
        assert reached is not None
        least, most = check.bounds(Caps())
        assert least <= reached <= most
        assert isinstance(reached, int) or isinstance(check, Real)
        assert not isinstance(reached, bool)
    assert all(-(2**63) <= number < 2**63 for number in numbers(reached)), reached
    assert len(json.dumps(reached)) < 70_000 or name in ("prompt", "input", "instructions", "messages")


@pytest.mark.parametrize("field", ["top_logprobs", "logprobs"])
def test_minus_one_is_not_under_the_cap(field: str) -> None:
    route = Route.COMPLETIONS if field == "logprobs" else Route.CHAT
    with pytest.raises(RequestError) as refused:
        sent(route, {field: -1})
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "invalid_value", field)


ORDINARY: list[tuple[Route, dict[str, Any]]] = [
    (
        Route.CHAT,
        {"temperature": 0, "top_p": 1, "top_k": -1, "seed": -5, "presence_penalty": -2, "frequency_penalty": 2},
    ),
    (Route.CHAT, {"temperature": 0.7, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.1, "logprobs": True}),
    (Route.CHAT, {"stop": "\n", "logit_bias": {"50256": -100}, "user": "u", "reasoning_effort": "low", "n": 2}),
    (Route.CHAT, {"stop": ["a", "b"], "stop_token_ids": [0, 128_009], "min_tokens": 0, "top_logprobs": 0}),
    (Route.CHAT, {"tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": False}),
    (Route.CHAT, {"repetition_detection": {"max_pattern_size": 20, "min_pattern_size": 3, "min_count": 4}}),
    (Route.COMPLETIONS, {"prompt": ["a", "b"], "logprobs": 5, "suffix": "end", "stream_interval": 1}),
    (Route.RESPONSES, {"metadata": {"a": "b"}, "include": ["reasoning.encrypted_content"], "max_tool_calls": 3}),
    (
        Route.RESPONSES,
        {"reasoning": {"effort": "high", "summary": "auto"}, "tool_choice": {"type": "function", "name": "f"}},
    ),
    (Route.EMBEDDINGS, {"input": [[1, 2], [3]], "dimensions": 256, "encoding_format": "base64"}),
]


@pytest.mark.parametrize(("route", "fields"), ORDINARY)
def test_ordinary_values_reach_the_engine_unchanged(route: Route, fields: dict[str, Any]) -> None:
    if route is Route.COMPLETIONS:
        fields = {**fields, "prompt": "hi"}
    written = sent(route, fields)
    assert {name: written[name] for name in fields if name != "prompt"} == {
        k: v for k, v in fields.items() if k != "prompt"
    }
    assert sent(route, dict.fromkeys(fields, None) | BASE[route])  # null asks for nothing


@pytest.mark.parametrize(
    "tokens", [[-1], [2**31], [10**30], [[1], [-1]], [1, "a"], [True], [1.5], [[]], [[1, "a"]], [{}]]
)
def test_what_is_no_token_id_is_refused(tokens: Any) -> None:
    with pytest.raises(RequestError) as refused:
        sent(Route.EMBEDDINGS, {"input": tokens})
    assert (refused.value.status, refused.value.param) == (400, "input")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([f for f in FIELDS if field_policies(f[0])[f[1]].action is Action.SHAPE]), ANY)
def test_any_value_is_refused_or_passes_its_own_check_again(field: tuple[Route, str], value: Any) -> None:
    """What a check lets through it lets through unchanged the second time: nothing hides behind the rebuilding."""
    route, name = field
    check = field_policies(route)[name].check
    assert check is not None
    if value is None:
        return
    try:
        once = check(value, name, Caps())
    except RequestError as refused:
        assert (refused.status, refused.param) == (400, name)
        return
    assert check(once, name, Caps()) == once
