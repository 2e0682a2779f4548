"""What the engine answers goes through as it is; what it refuses, in our words."""

import json
from typing import Any

import pytest

from tests.serving.wrapper.conftest import PROMPT, Wrapper
from tests.serving.wrapper.real_vllm.conftest import USER, last
from tests.serving.wrapper.tap import Tap

pytestmark = pytest.mark.anyio


async def test_the_engines_whole_answers_are_known(wrapped: Wrapper, tap: Tap) -> None:
    """Nothing is left out of what it answers, but for what repeats the request: no key of this version is forgotten."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    chat = {"messages": USER, "max_tokens": 3, "logprobs": True, "top_logprobs": 2, "n": 2, "tools": tools}
    for path, body in {
        "/v1/chat/completions": chat,
        "/v1/completions": {"prompt": "Once", "max_tokens": 3, "logprobs": 2},
        "/v1/responses": {"input": "Hi.", "max_output_tokens": 4, "metadata": {"a": "b"}},
    }.items():
        answer = await wrapped.http.post(path, json={"model": "tiny", **body})
        assert answer.status_code == 200, answer.text
        assert answer.json() == json.loads(tap.answers[-1]), path
        options = {} if path == "/v1/responses" else {"stream_options": {"include_usage": True}}
        streamed = await wrapped.http.post(path, json={"model": "tiny", **body, "stream": True, **options})
        for line, sent in zip(streamed.text.splitlines(), tap.answers[-1].decode().splitlines(), strict=False):
            if line.startswith("data: {"):
                assert json.loads(line[6:]) == json.loads(sent[6:]), path


@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_is_the_engines_own_bytes(wrapped: Wrapper, tap: Tap, asked: bool) -> None:
    """The gateway counts what goes by: the usage that only we asked for stands in the last choice's last event."""
    answer = await wrapped.chat(
        messages=USER, stream=True, max_tokens=40, ignore_eos=True, stream_options={"include_usage": asked}
    )
    sent = tap.answers[-1]
    assert sent.endswith(b"data: [DONE]\n\n")
    *pieces, last, usage, _, _ = sent.split(b"\n\n")
    assert b'"choices":[]' in usage
    told = json.loads(last[6:]) | json.loads(usage[6:]) | {"choices": json.loads(last[6:])["choices"]}
    if asked:
        assert answer.content == sent
    else:
        *same, merged, end, nothing = answer.content.split(b"\n\n")
        assert (same, json.loads(merged[6:]), end, nothing) == (pieces, told, b"data: [DONE]", b"")


async def test_a_plain_answer_is_the_engines_own_bytes(wrapped: Wrapper, tap: Tap) -> None:
    answer = await wrapped.chat(messages=USER, max_tokens=20, headers={"x-request-id": "asked-by-me"})
    assert answer.content == tap.answers[-1]
    assert answer.json()["id"] == "chatcmpl-asked-by-me"  # the engine's logs and answers carry the client's id


async def test_the_engines_refusals_come_through_in_our_words(wrapped: Wrapper, tap: Tap) -> None:
    await wrapped.until(lambda: wrapped.service.engines.problem is None, 60)  # it knows the model's context
    answer = await wrapped.chat(messages=[{"role": "user", "content": "x" * 5000}])
    assert answer.status_code == 400
    assert "maximum context length is 2048 tokens" in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    unknown = await wrapped.http.post("/v1/embeddings", json={"model": "tiny", "input": "x"})
    assert unknown.status_code == 404  # this engine generates; it does not embed
    assert unknown.json()["error"]["code"] == "not_found"  # the engine's own words are {"detail": "Not Found"}


async def test_what_the_engine_calls_a_bad_value_is_a_400_not_a_500(wrapped: Wrapper) -> None:
    for wrong in (
        {"temperature": "hot"},
        {"response_format": {"type": "x"}},
        {"tool_choice": 5},
        {"logit_bias": {"a": 1}},
    ):
        answer = await wrapped.chat(messages=USER, max_tokens=2, **wrong)
        assert answer.status_code == 400, (wrong, answer.text)
        assert answer.json()["error"]["param"].split(".")[0] == next(iter(wrong)), (wrong, answer.text)


MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "top_logprobs alone": ("top_logprobs", {"top_logprobs": 5}),
    "logprob_token_ids alone": ("logprob_token_ids", {"logprob_token_ids": [1]}),
    "a choice without tools": ("tool_choice", {"tool_choice": "required"}),
    "no schema": ("response_format", {"response_format": {"type": "json_schema"}}),
    "two kinds": ("structured_outputs", {"structured_outputs": {"regex": "a", "choice": ["a"]}}),
    "both ends": ("continue_final_message", {"continue_final_message": True, "add_generation_prompt": True}),
    "out of range": ("top_p", {"top_p": 0}),
    "deep inside": ("structured_outputs.choice[0]", {"structured_outputs": {"choice": [5]}}),
    "an unknown token": ("allowed_token_ids", {"allowed_token_ids": [99999]}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", MISTAKES)
async def test_an_error_names_the_field_and_repeats_nothing(
    wrapped: Wrapper, tap: Tap, name: str, stream: bool
) -> None:
    field, wrong = MISTAKES[name]
    answer = await wrapped.chat(messages=USER, max_tokens=2, stream=stream, **wrong)
    error = json.loads(answer.text.removeprefix("data: ").split("\n\n")[0])["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", field)
    assert PROMPT not in answer.text
    assert last(tap).json["cache_salt"] not in answer.text


async def test_an_empty_list_of_tools_is_none_and_a_refusal_is_history(wrapped: Wrapper) -> None:
    chat = await wrapped.chat(messages=USER, max_tokens=2, tools=[], tool_choice="auto")
    assert chat.status_code == 200, chat.text
    said = [{"type": "refusal", "refusal": "No."}]
    items = [{"type": None, "role": "user", "content": "Hi."}, {"role": "assistant", "content": said}]
    body = {"model": "tiny", "max_output_tokens": 2, "input": [*items, {"role": "user", "content": "Please."}]}
    answer = await wrapped.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
