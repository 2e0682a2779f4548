"""The promise: whatever is asked and whatever an engine answers, no piece of a secret is in what a client gets.

What a model says is not ours to judge: a text that stands where the model's own words belong (`MODELS_WORDS`), and the
bytes of a vector, are left out of the comparison. A model can repeat its prompt there.
"""

import asyncio
import io
import itertools
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.auth import Caller, Via, cache_salt, new_key
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.usage import StreamMeter, VectorsMeter
from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.routes import Route
from huddle.wrapper.service import WrapperService
from tests.serving.wrapper.conftest import BACKEND_KEY
from tests.serving.wrapper.engine.test_errors import leaked
from tests.serving.wrapper.fake_engine import Received, Reply, fake_engine
from tools.deadlines import scaled

ENGINE_KEY = "engine-key-0123456789abcdef"
KEY, DIGEST = new_key()
SALT_SECRET = b"salt secret of the tests"
SALT = cache_salt(SALT_SECRET, Caller(Via.OWN_KEY, "team", "alice"))
GATEWAY_SALT = cache_salt(SALT_SECRET, Caller(Via.GATEWAY, "team", "alice"))
PROMPTS = {
    "text": "Say nothing of the merger with Bolt & Söhne; the code of the vault is 4711.",
    "id": "internal-ticket:0123456789-abcdef.ghijkl",  # it could stand in an id
}
ROUTES = {
    Route.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Route.COMPLETIONS: {"prompt": "hi"},
    Route.RESPONSES: {"input": "hi", "instructions": "Be a pirate.", "metadata": {"a": "b"}},
    Route.EMBEDDINGS: {"input": "hi"},
}
_MESSAGE = r"(content|reasoning|reasoning_content|refusal|(tool_calls\.)?(function|function_call)\.(name|arguments))"
_ITEM = r"((content|summary)\.(text|refusal|logprobs\..*)|name|namespace|arguments)"
MODELS_WORDS = re.compile(
    rf"choices\.((message|delta)\.{_MESSAGE}|text|logprobs\..*)|(response\.)?output\.{_ITEM}|item\.{_ITEM}"
    r"|part\.(text|refusal|logprobs\..*)|delta|text|refusal|arguments|name|logprobs\..*|data\.embedding"
)
"""Where a model's own words stand, as keys from the outside in."""
TOKEN = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}]}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGE = {"role": "assistant", "content": "hi", "reasoning": "hm", "refusal": None, "tool_calls": [CALL]}
CHOICE = {"index": 0, "logprobs": {"content": [TOKEN]}, "finish_reason": "stop", "stop_reason": "x", "token_ids": None}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny", "system_fingerprint": "vllm-1"}
USAGE = {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}
PART = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": [TOKEN]}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [PART]}
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "status": "completed",
    "instructions": "x", "metadata": {"a": "b"}, "tools": [{"type": "function", "name": "x"}], "tool_choice": "auto",
    "text": {"format": {"type": "text"}}, "user": "x", "reasoning": {"effort": "low"}, "output": [ITEM],
    "incomplete_details": {"reason": "max_output_tokens"}, "input_messages": [{"role": "system", "content": "x"}],
    "prompt": {"id": "x"}, "truncation": "disabled", "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
DETAILS = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "sequence_number": 1}
ANSWERS: list[Any] = [
    {**HEAD, "choices": [{**CHOICE, "message": MESSAGE}], "usage": USAGE, "prompt_text": "x", "prompt_token_ids": [1]},
    {**HEAD, "choices": [{**CHOICE, "delta": MESSAGE}]},
    {**HEAD, "choices": [{**CHOICE, "text": "hi", "logprobs": {"tokens": ["a"], "top_logprobs": [{"a": -0.5}]}}]},
    {**HEAD, "choices": [], "usage": USAGE},
    RESPONSE,
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
    {"type": "response.completed", "sequence_number": 9, "response": RESPONSE},
    {"type": "response.output_text.delta", "delta": "hi", "logprobs": [TOKEN], **DETAILS},
    {"type": "response.output_item.done", "item": ITEM, "sequence_number": 4},
    {"type": "response.content_part.done", "part": PART, **DETAILS},
    {**HEAD, "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -2e-3]}], "usage": USAGE},
    {"error": {"message": "x", "type": "x", "param": "x", "code": 400}},
    {"object": "error", "message": "x"},
    {"detail": [{"loc": ["body"], "msg": "x", "input": {"a": "b"}}]},
    ["x", {"x": "x"}],
    "x",
]

# An engine's answer is made of marks, which become secrets when it is sent.
MARK = st.sampled_from(["<prompt>", "<salt>", "<key>", "<address>"])
TEXT = st.builds(str.__add__, st.sampled_from(["", "", "chatcmpl-", "see http://", 'é"\\\n']), MARK)
EVERYWHERE = st.sets(st.integers(0, 40), max_size=4) | st.just(set(range(41)))


@st.composite
def answers(draw: st.DrawFn) -> Any:
    """An answer with a secret in some places: in values, and as keys."""
    places, text, count = draw(EVERYWHERE), draw(TEXT), 0
    keys = draw(st.booleans())

    def spoiled(value: Any) -> Any:
        nonlocal count
        if isinstance(value, dict):
            made = {key: spoiled(one) for key, one in value.items()}
            return made | ({text: text, "debug": {"a": [text]}} if keys else {})
        if isinstance(value, list):
            return [spoiled(one) for one in value]
        count += 1
        return text if count - 1 in places else value

    return spoiled(draw(st.sampled_from(ANSWERS)))


def written(answer: Any, twice: str | None) -> str:
    """JSON, with one key given twice on demand: a reader takes the last."""
    text = json.dumps(answer, ensure_ascii=twice is None)
    if twice is None or not isinstance(answer, dict):
        return text
    return '{"id": ' + json.dumps(twice) + ", " + text[1:]


EVENT = st.builds(
    lambda lines, answer, twice, end: "".join(lines) + f"data: {written(answer, twice)}{end}",
    st.lists(st.builds("{}: {}\n".format, st.sampled_from(["", "event", "id"]), MARK), max_size=2),
    answers(),
    st.none() | MARK,
    st.sampled_from(["\n\n", "\n\n", "\n\n", "\r\n\r\n", "\n\n: <prompt>\n\n", "\ndata: <salt>\n\n"]),
)  # fmt: skip
BODY = st.one_of(
    st.builds(written, answers(), st.none() | MARK),
    st.lists(EVENT, max_size=4).map("".join).map(lambda events: events + "data: [DONE]\n\n"),
    st.lists(EVENT, min_size=1, max_size=2).map("".join).map(lambda events: events[:-5]),
    MARK.map(lambda mark: f"<html><body>http://<address>/ {mark}</body></html>"),
    MARK,
)
STATUS = st.sampled_from(
    [200] * 8 + [0, 100, 204, 206, 301, 302, 304, 307, 400, 401, 404, 418, 422, 429, 500, 503, 999]
)
TYPE = st.sampled_from(
    ["application/json", "application/json", "text/event-stream", "text/event-stream", "text/html", "a/<key>"]
)
HEADERS = st.lists(
    st.sampled_from(
        [
            "location: http://<address>/<salt>",
            "retry-after: <salt>",
            "set-cookie: a=<key>",
            "content-encoding: gzip",
            "x-request-id: <salt>",
            "server: <prompt>",
            "x-huddle-prompt-id: <prompt>",
        ]
    ),
    max_size=2,
)


@dataclass(frozen=True)
class Said:
    """What an engine answers: its marks become secrets, and its body goes out in pieces."""

    status: int = 200
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    body: str = ""
    cuts: frozenset[float] = frozenset()
    whole: bool = True
    chunked: bool = True

    async def send(self, request: Received, reply: Reply, prompt: str, address: str) -> None:
        secrets = {"<prompt>": prompt, "<salt>": request.json["cache_salt"], "<key>": ENGINE_KEY, "<address>": address}
        body, head = self.body, "\r\n".join((f"content-type: {self.content_type}", *self.headers))
        for mark, secret in secrets.items():
            body, head = body.replace(mark, secret), head.replace(mark, secret)
        data = body.encode()
        framing = "transfer-encoding: chunked" if self.chunked else f"content-length: {len(data)}"
        await reply.raw(f"HTTP/1.1 {self.status:03} OK\r\n{head}\r\n{framing}\r\n\r\n".encode())
        if not self.chunked:
            await reply.raw(data)
            return
        edges = sorted({0, len(data), *(int(len(data) * cut) for cut in self.cuts)})
        for start, end in itertools.pairwise(edges):
            await reply.chunk(data[start:end])
            await asyncio.sleep(0.002)
        if self.whole:
            await reply.end()
        else:
            reply.writer.close()


SAID = st.builds(
    Said,
    STATUS,
    TYPE,
    HEADERS.map(tuple),
    BODY,
    st.frozensets(st.floats(0, 1), max_size=2),
    st.sampled_from([True, True, True, False]),
)


@dataclass
class Live:
    """A wrapper in a thread, before an engine that says what it is told to."""

    port: int = 0
    address: str = ""
    said: Said = field(default_factory=Said)
    faults: list[Exception] = field(default_factory=list)
    http: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=scaled(20)), repr=False)
    log: io.BytesIO = field(default_factory=io.BytesIO)

    def ask(self, route: Route, model: str, *, stream: bool, gateway: bool) -> bytes:
        """All that a client gets, head and body, as far as it comes."""
        body = {"model": model, **ROUTES[route]} | ({"stream": True} if stream else {})
        headers = {"x-backend-key": BACKEND_KEY} if gateway else {"authorization": f"Bearer {KEY}"}
        headers |= {"x-huddle-product": "team", "x-huddle-tenant": "alice"}
        url = f"http://127.0.0.1:{self.port}{route.value}"
        got = b""
        try:
            with self.http.stream("POST", url, json=body, headers=headers) as answer:
                got = f"{answer.status_code} {answer.reason_phrase}\n".encode()
                got += b"".join(b"%b: %b\n" % pair for pair in answer.headers.raw) + b"\n"
                for chunk in answer.iter_raw():
                    got += chunk
        except httpx.RemoteProtocolError:
            pass  # cut, since the engine was
        return got


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    live, directory = Live(), tmp_path_factory.mktemp("unjudged")
    ready, stop = threading.Event(), []

    class Watched(WrapperService):
        def fault(self, error: Exception, request_id: str) -> None:
            live.faults.append(error)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        async with fake_engine() as engine:

            async def script(request: Received, reply: Reply) -> None:
                prompt = next((text for text in PROMPTS.values() if text in request.body.decode()), "no prompt here")
                await live.said.send(request, reply, prompt, live.address)

            engine.script = script
            live.address = f"127.0.0.1:{engine.port:05}"
            service = Watched(_runtime(directory, engine.port), LogWriter(live.log), Metrics())
            server = await loop.create_server(lambda: ClientConnection(service), "127.0.0.1", 0)
            live.port = server.sockets[0].getsockname()[1]
            ending = asyncio.Event()
            stop.append(lambda: loop.call_soon_threadsafe(ending.set))
            ready.set()
            await ending.wait()
            server.close()
            service.log.close()

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(scaled(10))
    yield live
    live.http.close()
    stop[0]()
    thread.join(10)


def _runtime(directory: Path, engine_port: int) -> runtimes.Runtime:
    for name, text in {**PROMPTS, "keys": BACKEND_KEY, "engine-key": ENGINE_KEY}.items():
        (directory / name).write_text(text)
    settings = {
        "listen": "127.0.0.1:0",
        "upstream": f"http://127.0.0.1:{engine_port}",
        "upstream_key_file": directory / "engine-key",
        "backend_keys_file": directory / "keys",
        "models": {name: {"system_prompt_file": directory / name, "upstream_model": "tiny"} for name in PROMPTS},
        "products": {"team": {"keys": [{"name": "alice", "sha256": DIGEST}]}},
    }
    return runtimes.build(WrapperConfig.model_validate(settings), SALT_SECRET)


def without_the_models_words(got: bytes) -> bytes:
    """An answer with the texts at their places taken out."""

    def blank(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {key: blank(one, f"{path}.{key}" if path else key) for key, one in value.items()}
        if isinstance(value, list):
            return [blank(one, path) for one in value]
        return "" if isinstance(value, str) and MODELS_WORDS.fullmatch(path) else value

    head, _, body = got.partition(b"\n\n")
    lines = []
    for line in body.split(b"\n") if b"text/event-stream" in head else [body]:
        begun, data = (line[:6], line[6:]) if line.startswith(b"data: ") else (b"", line)
        try:  # with all of an object's pairs: a key that is given twice hides none
            pairs = json.loads(data, object_pairs_hook=_all)
            lines.append(begun + json.dumps(blank(pairs, ""), ensure_ascii=False).encode())
        except ValueError:
            lines.append(line)
    return head + b"\n\n" + b"\n".join(lines)


def _all(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        made[f"{key} again" if key in made else key] = value
    return made


CHAT_SAYING = ANSWERS[0] | {"id": "<salt>"}


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(list(ROUTES)), st.sampled_from(list(PROMPTS)), st.booleans(), st.booleans(), SAID)
@example(Route.RESPONSES, "text", False, False, Said(body=json.dumps(RESPONSE | {"instructions": "<prompt>"})))
@example(Route.CHAT, "text", False, True, Said(body=json.dumps(CHAT_SAYING)))
@example(Route.EMBEDDINGS, "text", False, True, Said(body=json.dumps(ANSWERS[10] | {"x": "<key>"})))
@example(
    Route.RESPONSES,
    "text",
    True,
    False,
    Said(
        content_type="text/event-stream",
        body="data: " + json.dumps({"type": "response.created", "response": {"instructions": "<prompt>"}}) + "\n\n",
    ),
)
def test_no_piece_of_a_secret_is_in_what_a_client_gets(
    live: Live, route: Route, model: str, stream: bool, gateway: bool, said: Said
) -> None:
    live.said = said
    got = live.ask(route, model, stream=stream and route is not Route.EMBEDDINGS, gateway=gateway)
    assert got
    secrets = [PROMPTS[model], SALT, GATEWAY_SALT, ENGINE_KEY, KEY, BACKEND_KEY, live.address]
    assert leaked(secrets, without_the_models_words(got), 16) == []
    assert leaked([live.address], without_the_models_words(got), len(live.address)) == []
    assert live.faults == []


def everywhere(value: Any, text: str) -> Any:
    """An answer with a text in place of every string of it, and as a key of every object."""
    if isinstance(value, dict):
        return {key: everywhere(one, text) for key, one in value.items()} | {text: text}
    return [everywhere(one, text) for one in value] if isinstance(value, list) else text


@pytest.mark.parametrize("mark", ["<prompt>", "<salt>", "<key>", "<address>"])
@pytest.mark.parametrize("route", ROUTES)
def test_no_place_of_an_answer_shows_a_secret(live: Live, route: Route, mark: str) -> None:
    for answer, stream, model in itertools.product(ANSWERS, [False, True], PROMPTS):
        body = json.dumps(everywhere(answer, mark))
        content_type, body = ("text/event-stream", f"data: {body}\n\n") if stream else ("application/json", body)
        live.said = Said(content_type=content_type, body=body)
        got = without_the_models_words(live.ask(route, model, stream=False, gateway=False))
        assert leaked([PROMPTS[model], SALT, ENGINE_KEY, live.address], got, 14) == []


def usual(choice: str, identity: str = "chatcmpl-1", model: str = "tiny") -> bytes:
    """An event as engines write it."""
    start = f'"id":"{identity}","object":"chat.completion.chunk","created":1795000000,"model":"{model}"'
    return f'data: {{{start},"choices":[{{"index":0,{choice}}}]}}\n\n'.encode()


FIRST = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
LAST = '"delta":{"content":" end"},"logprobs":null,"finish_reason":"stop","stop_reason":null'


def streamed(events: list[bytes], route: Route = Route.CHAT) -> bytes:
    meter = StreamMeter(Judge(route, "", (*PROMPTS.values(), SALT, ENGINE_KEY)), hide=True, error=lambda _: b"ours")
    return b"".join(map(meter.feed, events)) + meter.rest()


def test_the_usual_events_pass_as_they_came() -> None:
    events = [usual(FIRST), usual('"delta":{"content":" word"},"finish_reason":null'), usual(LAST)]
    assert streamed(events) == b"".join(events)


@pytest.mark.parametrize("secret", [SALT, ENGINE_KEY, PROMPTS["id"]])
def test_the_usual_events_repeat_no_secret(secret: str) -> None:
    for named in ({"identity": secret}, {"model": secret}, {"identity": f"chatcmpl-{secret[:16]}"}):
        got = streamed([usual(FIRST, **named), usual(LAST, **named)])
        assert leaked([secret], got, 16) == []
        assert got.count(b"data: ") == 2


def test_the_usual_events_of_another_route_do_not_pass() -> None:
    assert b"choices" not in streamed([usual(FIRST), usual(LAST)], Route.RESPONSES)


def test_a_word_that_is_none_of_the_protocol_does_not_pass_as_a_reason() -> None:
    assert b"vault" not in streamed([usual(FIRST), usual(LAST.replace("stop", "the vault", 1))])


STATUSES = [0, 201, 202, 204, 205, 206, 226, 301, 302, 303, 304, 307, 308, 402, 418, 451, 502, 520, 599, 999]
OTHERS = [(200, "text/html", ""), (200, "", ""), (200, "application/json", "gzip"), (200, "text/event-stream", "br")]
NO_ANSWERS = [
    *itertools.product(STATUSES, ["application/json", "text/event-stream", "text/html"], ["", "gzip"]),
    *OTHERS,
]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", [Route.CHAT, Route.RESPONSES, Route.EMBEDDINGS])
def test_what_is_no_answer_is_a_502_in_our_words(live: Live, route: Route, stream: bool, chunked: bool) -> None:
    """Statuses, types and encodings that nobody has asked for, with a page that names an inner address."""
    for status, content_type, encoding in NO_ANSWERS:
        headers = ["location: http://<address>/", "retry-after: Fri, 31 Dec 1999 23:59:59 GMT", "x-engine: <address>"]
        headers += [f"content-encoding: {encoding}"] if encoding else []
        page = "<html><body>http://<address>/ <prompt></body></html>"
        live.said = Said(status, content_type, tuple(headers), page, chunked=chunked)
        got = live.ask(route, "text", stream=stream and route is not Route.EMBEDDINGS, gateway=True)
        head, _, body = got.partition(b"\n\n")
        assert head.startswith(b"502 "), (status, content_type, encoding)
        assert b"content-type: application/json\n" in head + b"\n"
        assert re.search(rb"retry-after: \d+\n", head + b"\n")
        assert b"content-encoding" not in head
        error = json.loads(body)["error"]
        assert (error["type"], error["code"]) == ("upstream_error", "engine_broken")
        assert leaked([PROMPTS["text"], live.address], got, 16) == []
    assert live.faults == []


VECTORS = (
    b'{"id":"embd-1","object":"list","created":1,"model":"tiny","data":[{"index":0,"object":"embedding",'
    b'"embedding":[0.1,-2e-3]},{"index":1,"object":"embedding","embedding":"AAAA//8="}],'
    b'"usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0,"prompt_tokens_details":null}}'
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_vectors_pass_as_they_came_in_any_pieces(size: int) -> None:
    meter = VectorsMeter(Judge(Route.EMBEDDINGS))
    pieces = [VECTORS[i : i + size] for i in range(0, len(VECTORS), size)]
    assert b"".join(map(meter.feed, pieces)) + meter.rest() == VECTORS
    assert meter.usage is not None
    assert meter.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    "spoiled",
    [
        VECTORS.replace(b'"usage"', b'"embedding","<b>"'),
        VECTORS.replace(b'"embd-1"', b'"a secret of 16 characters"'),
        VECTORS.replace(b"0.1", b"abc"),
        VECTORS.replace(b"AAAA", b"a b"),
        VECTORS.replace(b"0.1", b"127.0.0.1:41155"),
        b"127.0.0.1:41155",
        VECTORS[:36],
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_no_vector_holds_is_an_error(spoiled: bytes, size: int) -> None:
    meter = VectorsMeter(Judge(Route.EMBEDDINGS, "", ("a secret of 16 characters",)))
    with pytest.raises(RequestError):
        [meter.feed(spoiled[i : i + size]) for i in range(0, len(spoiled), size)] + [meter.rest()]
