"""An engine's error says which field is wrong, in our words. Nothing of its text, nothing that it was sent."""

import json
from typing import Any

import httpx
import openai
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.body.fields import SECTIONS
from huddle.wrapper.engine import errors as engine_errors
from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.usage import StreamMeter
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import BACKEND_KEY, PROMPT, MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import (
    DONE,
    MODEL,
    Received,
    Reply,
    event,
    polite,
    saying,
    sending,
    streaming,
    token,
)

pytestmark = pytest.mark.anyio


def vllm(message: str, code: int = 400, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": param, "code": code}}


def told(message: str, param: str | None, code: str) -> dict[str, Any]:
    """What a client gets for a request that the engine refuses."""
    return {"message": message, "type": "invalid_request_error", "param": param, "code": code}


def finding(kind: str, place: tuple[Any, ...], said: str, value: Any) -> str:
    return f"  {{'type': {kind!r}, 'loc': {place!r}, 'msg': {said!r}, 'input': {value!r}}}"


def pydantic(*findings: str, param: str | None = None) -> dict[str, Any]:
    return vllm(f"{len(findings)} validation errors:\n" + "\n".join(findings), param=param)


BODY = {"model": "tiny", "messages": [{"role": "system", "content": PROMPT}], "tools": [], "cache_salt": "0123456789ab"}
INVALID, MISSING, TYPE = "invalid_value", "missing_required_parameter", "invalid_type"


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


TOO_LONG = (
    "This model's maximum context length is 2048 tokens. However, you requested 4 output tokens and your prompt "
    "contains at least 2045 input tokens, for a total of at least 2049 tokens. Please reduce the length"
)


HI: Any = [{"role": "user", "content": "hi"}]


def sdk(wrapper: Wrapper) -> openai.AsyncOpenAI:
    """OpenAI's own client."""
    headers = {"x-backend-key": BACKEND_KEY}
    base = f"http://127.0.0.1:{wrapper.port}/v1"
    return openai.AsyncOpenAI(base_url=base, api_key="x", default_headers=headers, max_retries=0)


async def test_what_is_too_long_has_openais_code_and_the_numbers(wrapper: Wrapper) -> None:
    wrapper.engine.script = saying(vllm(TOO_LONG, param="input_tokens"), status=400)
    async with sdk(wrapper) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=HI)
    assert refused.value.code == "context_length_exceeded"
    for number in ("maximum context length is 2048 tokens", "2045 tokens", "4 tokens of output"):
        assert number in refused.value.message


ENGINE_STATUSES = {
    400: (400, "invalid_request"),
    401: (502, "engine_broken"),
    403: (502, "engine_broken"),
    404: (404, "not_found"),
    405: (404, "not_found"),
    422: (400, "invalid_request"),
    429: (429, "engine_busy"),
    500: (500, "engine_error"),
    501: (400, "not_supported"),
    503: (503, "engine_unavailable"),
    504: (504, "engine_timeout"),
    **dict.fromkeys((0, 201, 204, 206, 301, 302, 304, 307, 402, 418, 502, 520, 999), (502, "engine_broken")),
}
HEADERS = (
    f"location: http://10.0.0.4/{PROMPT.replace(' ', '-')}\r\nserver: {PROMPT}\r\nset-cookie: a={PROMPT}\r\n"
    f"retry-after: {PROMPT}\r\nx-engine: http://127.0.0.1:5005\r\n"
)


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


# -- errors inside of streams --


async def test_an_error_in_a_stream_is_ours_and_the_rest_is_the_engines(wrapper: Wrapper) -> None:
    error = event(vllm(f"temperature must be at least 0: {PROMPT}", param="temperature"))
    said, more = token('say "error": {"x"}'), token("error")
    wrapper.engine.script = streaming(said, more + error[:40], error[40:] + DONE)
    answer = await wrapper.chat(stream=True, stream_options={"include_usage": True})
    assert answer.content.startswith(said + more)
    assert answer.content.endswith(DONE)
    ours = json.loads(answer.content[len(said + more) : -len(DONE)].removeprefix(b"data: "))["error"]
    assert ours == told("'temperature' is out of range", "temperature", INVALID)


async def test_the_sdk_raises_it(wrapper: Wrapper) -> None:
    wrapper.engine.script = streaming(event({"type": "error", "code": None, "message": PROMPT}) + DONE)
    async with sdk(wrapper) as client:
        with pytest.raises(openai.APIError, match="the engine failed on this request"):
            async for _ in await client.chat.completions.create(model=MODEL, messages=HI, stream=True):
                pass


def metered(chunks: list[bytes], *, hide: bool = False, route: Route = Route.CHAT) -> bytes:
    meter = StreamMeter(Judge(route), hide=hide, error=lambda _: b"data: ours\n\n")
    return b"".join(map(meter.feed, chunks)) + meter.rest()


LONG = b"x" * 3_000_000
NO_ERRORS = {
    "a text": event({"choices": [{"finish_reason": "error", "delta": {"content": "error"}}]}),
    "a long event": token("x" * 1_400_000),
    "a piece with quotes": token('say "error": {"x"}, \\ and more'),
}
ERRORS = {
    "vLLM's": event(vllm(PROMPT)),
    "an older one": event({"object": "error", "message": PROMPT}),
    "of /v1/responses": b"event: error\n" + event({"type": "error", "message": PROMPT}),
    "a failed response": event({"type": "response.failed", "response": {"error": {"message": PROMPT}}}),
    "not JSON": b'data: {"error": {"message": ' + PROMPT.encode() + b"\n\n",
    "without an end": b'data: {"error": {"message": "' + PROMPT.encode(),
    "long": event(vllm(PROMPT + "x" * 5_000_000)),
    "long and without an end": b'data: {"error": {"message": "' + LONG + LONG + PROMPT.encode(),
}


SIZES = pytest.mark.parametrize("size", [1, 7, 65_536, 10**9])
HIDDEN = pytest.mark.parametrize("hide", [False, True])


def chunks(stream: bytes, size: int) -> list[bytes]:
    """Pieces of `size` bytes; larger ones where there would be too many."""
    size = max(size, len(stream) // 2_000)
    return [stream[i : i + size] for i in range(0, len(stream), size)]


@SIZES
@HIDDEN
@pytest.mark.parametrize("name", NO_ERRORS)
def test_what_is_no_error_passes_unchanged(name: str, hide: bool, size: int) -> None:
    stream = token("a") + NO_ERRORS[name]
    assert metered(chunks(stream, size), hide=hide) == stream


@SIZES
@HIDDEN
@pytest.mark.parametrize("name", ERRORS)
def test_what_is_an_error_is_replaced_whole(name: str, hide: bool, size: int) -> None:
    after = token("b") if ERRORS[name].endswith(b"\n\n") else b""
    got = metered(chunks(token("a") + ERRORS[name] + after, size), hide=hide)
    assert got == token("a") + b"data: ours\n\n" + after


# -- the promise --

KEY, DIGEST = new_key()
SECRET = st.text(
    st.sampled_from("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789 '\"\\{}()[],:\n\t<>&é`="), min_size=16, max_size=60
)
WRAPPINGS = [
    vllm,
    lambda text: vllm(text, 500),
    lambda text: pydantic(finding("value_error", ("body",), f"Value error, `tools` {text}", {"messages": [text]})),
    lambda text: pydantic(finding("missing", ("body", "messages", 0, text, "content"), text, text), param=text),
    lambda text: pydantic(finding("int_type", ("body", text, 12345678, 87654321), text, text)),
    lambda text: vllm(f"{TOO_LONG} {text} (parameter={text}, value={text})", param=f"body.tools.0.{text}"),
    lambda text: {"error": {"message": text, "type": text, "param": text, "code": text}},
    lambda text: {"error": text, "message": text, "detail": [{"loc": [text], "msg": text, "input": {"a": [text]}}]},
    lambda text: vllm(json.dumps(vllm(json.dumps({"a": text}))), param="messages"),
    lambda text: {"type": "error", "message": text, "response": {"error": {"message": text}}},
]
NO_ERROR_SHAPE = [lambda text: [text, {text: text}], lambda text: text]  # an event of a stream like this is no error


def leaked(secrets: list[str], answer: bytes, length: int = 16) -> list[str]:
    """The pieces of secrets that an answer holds, as it is or inside of JSON strings."""
    shown = answer.decode("utf-8", "replace")
    forms = {shown, shown.replace("\\\\", "\\"), shown.encode().decode("unicode_escape", "replace")}
    pieces = {s[i : i + length] for s in secrets for i in range(max(len(s) - length + 1, 1))}
    return [piece for piece in pieces if any(piece in form for form in forms)]


def bytes_of(answer: httpx.Response) -> bytes:
    return b"".join(name + b": " + value + b"\n" for name, value in answer.headers.raw) + answer.content


@settings(max_examples=400, deadline=None)
@given(
    secrets=st.lists(SECRET, min_size=1, max_size=3),
    wrap=st.sampled_from(WRAPPINGS + NO_ERROR_SHAPE),
    status=st.sampled_from([*ENGINE_STATUSES, 400, 400, 400]),
    html=st.booleans(),
    ascii_only=st.booleans(),
    cut=st.none() | st.integers(1, 400),
    filler=st.sampled_from([0, 0, 5_000]),
    route=st.sampled_from(sorted(SECTIONS)),
)
@example(["secret of 16 char"], WRAPPINGS[2], 400, False, True, None, 0, Route.CHAT)
def test_nothing_secret_of_an_error_is_in_what_we_say(
    secrets: list[str],
    wrap: Any,
    status: int,
    html: bool,
    ascii_only: bool,
    cut: int | None,
    filler: int,
    route: Route,
) -> None:
    text = " ".join(secrets) + "x" * filler
    said = f"<html>{text}</html>" if html else json.dumps(wrap(text), ensure_ascii=ascii_only)
    body = said.encode()[:cut]
    assert leaked(secrets, engine_errors.translate(status, body, route, secrets[0].encode()).body()) == []
    assert leaked(secrets, engine_errors.translate_event(b"data: " + body, route).event()) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", SECTIONS)
async def test_no_route_shows_what_an_engine_repeats(make_wrapper: MakeWrapper, route: Route, stream: bool) -> None:
    """Through the whole wrapper: an engine that puts all that it got into every kind of error."""
    wrapper = await make_wrapper(products={"team": {"keys": [{"name": "a", "sha256": DIGEST}]}})

    async def script(request: Received, reply: Reply) -> None:
        said = WRAPPINGS[len(wrapper.engine.completions) % len(WRAPPINGS)](request.raw.decode())
        streams = stream and route is not Route.EMBEDDINGS
        await (streaming(event(said) + DONE) if streams else saying(said, 400, HEADERS))(request, reply)

    wrapper.engine.script = script
    fields = {Route.CHAT: {"messages": HI}, Route.COMPLETIONS: {"prompt": "hi"}}
    del wrapper.http.headers["x-backend-key"]
    for _ in WRAPPINGS:
        body = {"model": MODEL, **fields.get(route, {"input": "hi"}), "stream": stream}
        answer = await wrapper.http.post(route.value, json=body, headers={"authorization": f"Bearer {KEY}"})
        salt = wrapper.engine.completions[-1].json["cache_salt"]
        assert leaked([PROMPT, KEY, salt, f"127.0.0.1:{wrapper.engine.port}", "127.0.0.1:5005"], bytes_of(answer)) == []
        assert json.loads(answer.text.removeprefix("data: ").split("\n\n")[0])["error"]["message"]
    assert leaked([PROMPT, KEY], json.dumps(wrapper.log_lines()).encode()) == []
