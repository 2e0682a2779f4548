"""An engine's error says which field is wrong, in our words. Nothing of its text, nothing that it was sent."""

import json
from typing import Any

import openai
import pytest

from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import PROMPT, Wrapper
from tests.serving.wrapper.engine.vllm_errors import (
    ENGINE_STATUSES,
    HEADERS,
    HI,
    INVALID,
    TOO_LONG,
    finding,
    pydantic,
    told,
    vllm,
)
from tests.serving.wrapper.fake_engine import (
    MODEL,
    Received,
    Reply,
    polite,
    saying,
    sending,
)
from tests.serving.wrapper.leaks import bytes_of, leaked

pytestmark = pytest.mark.anyio

BODY = {"model": "tiny", "messages": [{"role": "system", "content": PROMPT}], "tools": [], "cache_salt": "0123456789ab"}
MISSING, TYPE = "missing_required_parameter", "invalid_type"


def of_body(said: str, param: str | None = None) -> dict[str, Any]:
    return pydantic(finding("value_error", ("body",), f"Value error, {said}", BODY), param=param)


# As vLLM 0.26.0 for the CPU writes them: what it says, and what clients get of it.
SAID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tools: []": (
        of_body("`tools` must not be an empty array. Either provide"),
        told("'tools' must not be empty; leave it out instead", "tools", INVALID),
    ),
    "top_logprobs alone": (
        of_body("when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)"),
        told("'top_logprobs' needs 'logprobs'", "top_logprobs", INVALID),
    ),
    "json_schema without one": (
        of_body(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided. "
            "(parameter=response_format)",
            param="response_format",
        ),
        told("'response_format' is not complete", "response_format", INVALID),
    ),
    "two kinds": (
        of_body("You can only use one kind of constraints for structured outputs ('json', 'regex')."),
        told("'structured_outputs' must hold exactly one kind of constraint", "structured_outputs", INVALID),
    ),
    "both": (
        of_body("Cannot set both `continue_final_message` and `add_generation_prompt` to True."),
        told(
            "'continue_final_message' cannot be set together with 'add_generation_prompt'",
            "continue_final_message",
            INVALID,
        ),
    ),
    "no tools": (
        of_body("Tool choice 'required' must be specified with 'tools' parameter. (parameter=tool_choice)"),
        told("'tool_choice' needs 'tools'", "tool_choice", INVALID),
    ),
    "a wrong type": (
        pydantic(finding("float_parsing", ("body", "temperature"), "Input should be a valid number", "hot")),
        told("'temperature' must be a number", "temperature", TYPE),
    ),
    "deep inside": (
        pydantic(finding("missing", ("body", "tools", 0, "function", "name"), "Field required", {"x": "y"})),
        told("'tools[0].function.name' is missing", "tools[0].function.name", MISSING),
    ),
    "deep inside, as 0.32.0 says it": (
        pydantic(
            "  {'type': 'missing', 'loc': 'body.tools.0.function.name', 'msg': 'Field required', 'input': '<dict>'}"
        ),
        told("'tools[0].function.name' is missing", "tools[0].function.name", MISSING),
    ),
    "one of several forms": (  # which of them is not said: the prompt has moved them
        pydantic(
            finding("literal_error", ("body", "messages", 1, "ChatCompletionUser", "role"), "Input should be", PROMPT),
            finding("string_type", ("body", "messages", 1, "ChatCompletionTool", "name"), "Input should be", PROMPT),
        ),
        told("'messages' does not have the right shape", "messages", INVALID),
    ),
    "vLLM's own check": (
        vllm("temperature must be non-negative, got -3.0. (parameter=temperature, value=-3.0)", param="temperature"),
        told("'temperature' is out of range", "temperature", INVALID),
    ),
    "an empty stop": (
        vllm("stop cannot contain an empty string."),
        told("'stop' must not hold an empty text", "stop", INVALID),
    ),
    "an unknown reason": (
        vllm(f"Something about {PROMPT} is wrong"),
        told("the engine does not accept the request", None, "invalid_request"),
    ),
    "a grammar": (
        vllm("Failed to convert the grammar from GBNF to Lark: Expected ')' at line 1, 'root ::= (((' ^ ''"),
        told("the engine does not accept the request: its schema or grammar cannot be used", None, "invalid_request"),
    ),
    "a schema that cannot be compiled": (
        vllm(f"Failed to transform json schema into a grammar: temperature must be positive: {PROMPT}"),
        told(
            "the engine does not accept the request: its schema cannot be compiled: a keyword has a value of the wrong "
            "kind, or nothing is left that it allows",
            None,
            "invalid_request",
        ),
    ),
    "a thing without a name": (
        vllm("This is not supported."),
        told(
            "the engine does not accept the request: something in it is not supported by the engine",
            None,
            "invalid_request",
        ),
    ),
    "not an error of OpenAI's shape": (
        {"detail": PROMPT},
        told("the engine does not accept the request", None, "invalid_request"),
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", SAID)
async def test_a_client_learns_the_field_and_the_kind_of_fault(wrapper: Wrapper, name: str, stream: bool) -> None:
    said, ours = SAID[name]

    wrapper.engine.script = saying(said, status=400)
    answer = await wrapper.chat(stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"] == ours
    assert "retry-after" not in answer.headers


MOST = "This model's maximum context length is 2048 tokens. However, your"
OTHER_SENTENCES = {
    f"{MOST} prompt contains at least 2049 input tokens, which exceeds": "2049 tokens",
    f"{MOST} prompt contains 90000 characters (more than": "90000 characters",
    "The decoder prompt (length 3000) is longer than the maximum model length of 2048. Make sure": "3000 tokens",
    "The decoder prompt (length 2048) plus the number of requested output tokens (at least 1) is longer than the "
    "maximum model length of 2048. Make sure": "2048 tokens",
    "Input length (3000) exceeds model's maximum context length (2048).": "3000 tokens",
}


@pytest.mark.parametrize("said", OTHER_SENTENCES)
def test_every_sentence_about_length_is_understood(said: str) -> None:
    refused = engine_errors.translate(400, json.dumps(vllm(said)).encode(), Route.CHAT)
    assert refused.code == "context_length_exceeded"
    assert refused.message == f"{MOST} request has {OTHER_SENTENCES[said]} or more. Please reduce its length."


async def test_what_is_too_long_has_openais_code_and_the_numbers(wrapper: Wrapper, sdk: openai.AsyncOpenAI) -> None:
    wrapper.engine.script = saying(vllm(TOO_LONG, param="input_tokens"), status=400)
    with pytest.raises(openai.BadRequestError) as refused:
        await sdk.chat.completions.create(model=MODEL, messages=HI)
    assert refused.value.code == "context_length_exceeded"
    for number in ("maximum context length is 2048 tokens", "2045 tokens", "4 tokens of output"):
        assert number in refused.value.message


@pytest.mark.parametrize("status", ENGINE_STATUSES)
async def test_every_status_becomes_one_that_is_documented(wrapper: Wrapper, status: int) -> None:
    body = f"<html><body>http://10.0.0.4:5005/ {PROMPT}</body></html>"
    head = f"HTTP/1.1 {status:03} {PROMPT}\r\ncontent-type: application/json; x={PROMPT}\r\n{HEADERS}"
    wrapper.engine.script = sending(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
    answer = await wrapper.chat()
    expected, code = ENGINE_STATUSES[status]
    assert (answer.status_code, answer.json()["error"]["code"]) == (expected, code)
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers.get("retry-after", 1)) >= 1
    assert leaked([PROMPT, "10.0.0.4:5005"], bytes_of(answer)) == []
    wrapper.engine.script = polite
    assert (await wrapper.chat()).status_code == 200


@pytest.mark.parametrize(
    ("said", "got"), [("7", "7"), ("0", "1"), ("abc", "5"), ("-1", "5"), ("9" * 30, "5"), ("", "5")]
)
async def test_retry_after_is_a_number_of_seconds(wrapper: Wrapper, said: str, got: str) -> None:
    wrapper.engine.script = saying(vllm("busy", 429), status=429, headers=f"retry-after: {said}\r\n")
    assert (await wrapper.chat()).headers["retry-after"] == got


@pytest.mark.parametrize(
    "head", ["content-type: text/html", "content-type: application/json\r\ncontent-encoding: gzip", "x: y"]
)
async def test_an_answer_that_was_not_asked_for_is_a_502(wrapper: Wrapper, head: str) -> None:
    wrapper.engine.script = sending(f"HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: 4\r\n\r\n<b/>".encode())
    answer = await wrapper.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broken")


async def test_an_endless_error_is_not_waited_for(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 400 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        await reply.chunk(b'{"error":{"message":"1 validation error:\\n  ')
        await reply.chunk(finding("missing", ("body", "messages"), "Field required", "x" * 8192).encode())
        await reply.closed_by_peer()

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.json()["error"]["message"] == "'messages' is missing"
    assert len(answer.content) < 4096


async def test_the_log_has_the_field_and_no_text(wrapper: Wrapper) -> None:
    wrapper.engine.script = saying(SAID["tools: []"][0], status=400)
    await wrapper.chat()
    lines = wrapper.log_lines()
    (line,) = [line for line in lines if line["event"] == "engine_error"]
    assert (line["engine_status"], line["code"], line["param"]) == (400, INVALID, "tools")
    assert line["bytes"] > 100
    assert leaked([PROMPT, "0123456789ab"], json.dumps(lines).encode(), 8) == []
