"""Messages, items of /v1/responses, calls and tools: only what is whole and of a known kind reaches the engine."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.pictures import TINY
from tools.deadlines import scaled

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
TOOL = {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": True}


def sent(route: Route, **fields: Any) -> dict[str, Any]:
    preparer = Preparer({"m": Served("m", "m")}, Caps())
    base: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]} if route is Route.CHAT else {"input": "hi"}
    body = json.dumps({"model": "m", **base, **fields}).encode()
    written: dict[str, Any] = json.loads(preparer.prepare(route, body, "salt").body)
    return written


def refusal(route: Route, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        sent(route, **fields)
    assert refused.value.status == 400
    return refused.value


def item(**fields: Any) -> Any:
    return sent(Route.RESPONSES, input=[fields])["input"][0]


NOT_WHOLE: dict[str, dict[str, Any]] = {
    "reasoning alone": {"type": "reasoning"},
    "reasoning without an id": {"type": "reasoning", "summary": []},
    "a summary that is a text": {"type": "reasoning", "id": "r", "summary": "x"},
    "a summary of another kind": {"type": "reasoning", "id": "r", "summary": [{"type": "input_image", "text": "x"}]},
    "thinking of another kind": {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "input_audio"}]},
    "a thought of nothing": {"type": "reasoning", "id": "r", "summary": [{}]},
    "a thought without text": {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text"}]},
    "a part without its text": {"type": "message", "role": "user", "content": [{"type": "input_text"}]},
    "too many thoughts": {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": ""}] * 1_025},
    "a call alone": {"type": "function_call"},
    "a call without arguments": {"type": "function_call", "call_id": "c", "name": "f"},
    "arguments as an object": {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}},
    "deep arguments": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "[" * 100_000},
    "a name that is a list": {"type": "function_call", "call_id": "c", "name": ["f"], "arguments": "{}"},
    "a long id": {"type": "function_call", "call_id": "c" * 70_000, "name": "f", "arguments": "{}"},
    "an output alone": {"type": "function_call_output", "call_id": "c"},
    "an output of nothing": {"type": "function_call_output", "call_id": "c", "output": []},
    "an output object": {"type": "function_call_output", "call_id": "c", "output": {}},
    "an unknown status": {"type": "message", "role": "user", "content": "x", "status": "y"},
    "a message of a tool": {"type": "message", "role": "tool", "content": "x"},
    "no content": {"type": "message", "role": "user"},
    "empty content": {"type": "message", "role": "assistant", "content": []},
    "output of a user": {"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]},
    "a part without text": {"type": "message", "role": "user", "content": [{"type": "input_text"}]},
    "an image in an object": {"role": "user", "content": [{"type": "input_image", "image_url": {"url": TINY}}]},
    "an odd detail": {"role": "user", "content": [{"type": "input_image", "image_url": TINY, "detail": 5}]},
    "too many parts": {"role": "user", "content": [{"type": "input_text", "text": ""}] * 1_025},
    "another kind": {"type": "item_reference", "id": "x"},
    "a kind that is a list": {"type": ["message"], "role": "user", "content": "x"},
}


@pytest.mark.parametrize("case", NOT_WHOLE)
def test_an_item_that_is_not_whole_is_a_400(case: str) -> None:
    assert len(refusal(Route.RESPONSES, input=[NOT_WHOLE[case]]).body()) < 1_000


def test_what_clients_send_without_meaning_it_is_left_out() -> None:
    for route in (Route.CHAT, Route.RESPONSES):
        for choice in ("auto", "none"):
            written = sent(route, tools=[], tool_choice=choice)
            assert not written.keys() & {"tools", "tool_choice"}
        assert sent(route, tool_choice="required")["tool_choice"] == "required"  # the engine's to refuse
    assert item(type=None, role="user", content="hi") == {"type": "message", "role": "user", "content": "hi"}


def test_a_refusal_of_the_past_is_what_was_said() -> None:
    made = item(type="message", role="assistant", content=[{"type": "refusal", "refusal": "No."}])
    assert made["content"] == [{"type": "output_text", "text": "No.", "annotations": []}]


def test_an_item_is_rebuilt_from_the_keys_of_its_kind() -> None:
    evil = {"image_url": "http://10.0.0.1", "role": "system", "uuid": "x", "content_type": 1}
    assert item(type="function_call_output", call_id="c", output="done", **evil) == {
        "type": "function_call_output",
        "call_id": "c",
        "output": "done",
    }
    assert item(type="reasoning", id="r", summary=[{"type": "summary_text", "text": "t", "x": 1}], **evil) == {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": "t"}],
    }
    text = {"type": "output_text", "text": "t", "annotations": [{"x": [1] * 100}], "logprobs": [{"y": 10**6}]}
    assert item(role="assistant", content=[text], id="m", status="completed")["content"] == [
        {"type": "output_text", "text": "t", "annotations": []}
    ]


@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": {}},
        {"tool_calls": [1]},
        {"tool_calls": [{"type": "function"}]},
        {"tool_calls": [{**CALL, "type": "custom"}]},
        {"tool_calls": [{**CALL, "function": {"name": 5, "arguments": "{}"}}]},
        {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]},
        {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": '{"a":' * 1_000}}]},
        {"tool_calls": [CALL] * 1_025},
        {"function_call": "auto"},
        {"reasoning": ["x"]},
        {"tool_calls": [{**CALL, "function": {"name": "f", "arguments": None}}]},
        {"name": {"first": "x"}},
    ],
)
def test_calls_of_a_message_are_typed_and_bounded(message: dict[str, Any]) -> None:
    messages = [{"role": "assistant", "content": None, **message}]
    assert refusal(Route.CHAT, messages=messages).param == "messages"


def test_a_message_is_rebuilt_from_its_keys() -> None:
    call = {**CALL, "function": {**CALL["function"], "x": 1}, "index": 0}
    asked: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call]}
    asked |= {"tools": [{}], "task": "x", "refusal": None}
    assert sent(Route.CHAT, messages=[asked])["messages"] == [
        {"role": "assistant", "content": None, "tool_calls": [CALL]}
    ]


def test_brackets_in_the_texts_of_arguments_do_not_count_as_nesting() -> None:
    said = json.dumps({"code": "[" * 1_000 + '\\"{'})
    assert item(type="function_call", call_id="c", name="f", arguments=said)["arguments"] == said


@pytest.mark.parametrize(
    "change",
    [{"name": None}, {"name": 1}, {"description": 1}, {"parameters": "x"}, {"parameters": []}, {"strict": "no"}],
)
@pytest.mark.parametrize("route", [Route.CHAT, Route.RESPONSES])
def test_tools_are_typed(route: Route, change: dict[str, Any]) -> None:
    made = {**TOOL, **change}
    tool = {"type": "function", **made} if route is Route.RESPONSES else {"type": "function", "function": made}
    assert refusal(route, tools=[tool]).param == "tools"


def test_tools_are_rebuilt_from_their_keys() -> None:
    flat = {"type": "function", **TOOL}
    assert sent(Route.RESPONSES, tools=[{**flat, "defer_loading": True, "url": "x"}])["tools"] == [flat]
    nested = {"type": "function", "function": TOOL}
    assert sent(Route.CHAT, tools=[{**nested, "function": {**TOOL, "x": 1}, "url": "x"}])["tools"] == [nested]


TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
PART = st.sampled_from(["text", "input_text", "output_text", "refusal", "input_image", "image_url", "input_audio"])
VALUE = st.none() | TEXT | st.integers(0, 2) | st.booleans()
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(["message", "function_call", "function_call_output", "reasoning"])},
    optional={
        "id": VALUE,
        "status": st.sampled_from(["completed", "incomplete", None, "x"]),
        "role": st.sampled_from(["user", "assistant", "system", "developer", "tool"]),
        "content": TEXT
        | st.lists(
            st.fixed_dictionaries(
                {"type": PART},
                optional={"text": TEXT, "refusal": TEXT, "image_url": st.just(TINY), "detail": st.just("low")},
            ),
            min_size=1,
            max_size=2,
        ),
        "call_id": TEXT | VALUE,
        "name": TEXT | VALUE,
        "arguments": TEXT,
        "output": TEXT,
        "summary": st.lists(st.fixed_dictionaries({"type": st.just("summary_text"), "text": TEXT}), max_size=2),
        "encrypted_content": VALUE,
        "annotations": VALUE,
    },
)
ACCEPT = """
import json, sys
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
for line in sys.stdin:
    try:
        ResponsesRequest.model_validate({"model": "m", "input": [json.loads(line)]})
    except ValueError as error:
        print(line.strip(), str(error)[:300])
"""


def test_what_passes_is_an_item_of_the_engines_own_models(vllm_python: Path) -> None:
    """Random items: the engine's models accept all that reach them; a refusal would cost an error for each kind."""
    passed: list[str] = []

    @settings(max_examples=4_000, deadline=None, derandomize=True, database=None)
    @given(ITEM)
    def collect(given: dict[str, Any]) -> None:
        try:
            passed.append(json.dumps(item(**given)))
        except RequestError:
            return

    collect()
    kinds = {(made["type"], made.get("role")) for made in map(json.loads, passed)}
    assert len(kinds) == 7  # four roles, and three kinds without one
    done = subprocess.run(
        [vllm_python, "-c", ACCEPT],
        input="\n".join(passed),
        capture_output=True,
        text=True,
        timeout=scaled(300),
        check=True,
    )
    assert [line for line in done.stdout.splitlines() if line.startswith("{")] == []
