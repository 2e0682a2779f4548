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
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.routes import Route
from huddle.wrapper.service import WrapperService
from tests.serving.wrapper.conftest import BACKEND_KEY
from tests.serving.wrapper.engine.hostile_answers import (
    ANSWERS,
    DIGEST,
    ENGINE_KEY,
    GATEWAY_SALT,
    KEY,
    PROMPTS,
    RESPONSE,
    SAID,
    SALT,
    SALT_SECRET,
    Said,
)
from tests.serving.wrapper.fake_engine import Received, Reply, fake_engine
from tests.serving.wrapper.leaks import leaked
from tools.deadlines import scaled

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
