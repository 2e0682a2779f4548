"""Whatever is sent: an answer of the engine, or a refusal with a reason. Never a 500 of ours."""

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.fields import SECTIONS, field_policies
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.body.prompts import ClientSystem, Prompt
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.connection import ClientConnection
from huddle.wrapper.http.http1 import HttpLimits, RequestReader
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.openapi import document
from huddle.wrapper.routes import Route
from huddle.wrapper.service import WrapperService
from tools.deadlines import scaled

from .conftest import BACKEND_KEY
from .fake_engine import MODEL, fake_engine

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TEXTS = st.sampled_from(["text", "image_url", "input_image", "input_audio", "refusal", "file", ""]) | JSON
PART = st.fixed_dictionaries(
    {}, optional={"type": TEXTS, "text": JSON, "image_url": JSON, "url": JSON, "input_audio": JSON, "uuid": JSON}
)
ROLE = st.sampled_from(["system", "developer", "user", "assistant", "tool", "king"]) | JSON
MESSAGE = st.fixed_dictionaries(
    {}, optional={"role": ROLE, "content": JSON | st.lists(PART, max_size=3), "type": TEXTS, "tool_calls": JSON}
)


def bodies(route: Route) -> st.SearchStrategy[dict[str, Any]]:
    """Bodies near enough to good ones that they get deep into the code, with any value in any known field."""
    near: dict[str, Any] = {
        "model": st.just(MODEL) | JSON,
        "messages": st.lists(MESSAGE, max_size=3) | JSON,
        "input": st.text() | st.lists(MESSAGE | st.text() | st.integers(), max_size=3) | JSON,
        "prompt": st.text() | st.lists(st.text() | st.integers(), max_size=3) | JSON,
        "stream": st.booleans() | JSON,
    }
    others = st.dictionaries(st.sampled_from(sorted(field_policies(route))), JSON, max_size=3)
    return st.tuples(others, st.fixed_dictionaries({}, optional=near)).map(lambda pair: pair[0] | pair[1])


@pytest.mark.parametrize("route", SECTIONS)
def test_preparing_anything_ends_in_a_request_or_a_refusal(route: Route) -> None:
    @settings(max_examples=150, deadline=None)
    @given(bodies(route), st.sampled_from(ClientSystem))
    def check(body: dict[str, Any], mode: ClientSystem) -> None:
        preparer = Preparer({MODEL: Served(MODEL, MODEL, Prompt("p", "ours", mode))}, Caps())
        raw = json.dumps(body).encode()
        try:
            prepared = preparer.prepare(route, raw, "salt")
        except RequestError as refused:
            assert 400 <= refused.status < 500
            json.loads(refused.body())
            return
        written = json.loads(prepared.body)
        assert written["cache_salt"] == "salt"
        assert prepared.reserve_tokens >= 0
        assert set(written) <= set(field_policies(route))
        first = {
            Route.CHAT: lambda: written["messages"][0]["content"],
            Route.COMPLETIONS: lambda: (
                written["prompt"] if isinstance(written["prompt"], str) else written["prompt"][0]
            ),
            Route.RESPONSES: lambda: written["input"][0]["content"],
            Route.EMBEDDINGS: lambda: "ours",
        }[route]()
        assert first.startswith("ours")

    check()


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
@example(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 3)
@example(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n0\r\n\r\n")
def test_reading_any_bytes_ends_in_a_request_or_a_refusal(data: bytes) -> None:
    for prefix in (
        b"",
        b"GET ",
        b"POST / HTTP/1.1\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n",
    ):
        reader = RequestReader(HttpLimits())
        try:
            reader.feed(prefix)
            for at in range(0, len(data), 7):
                reader.feed(data[at : at + 7])
        except RequestError as refused:
            assert refused.close


@pytest.fixture(scope="module")
def live() -> Iterator[tuple[str, list[Exception]]]:
    """A wrapper and a polite engine in a thread; and the faults of the wrapper's own."""
    faults: list[Exception] = []
    address: list[str] = []
    ready, stop = threading.Event(), []

    class Watched(WrapperService):
        def fault(self, error: Exception, request_id: str) -> None:
            faults.append(error)

    async def serve(directory: str) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: faults.append(context.get("exception") or Exception(str(context)))
        )
        async with fake_engine() as engine:
            config = WrapperConfig.model_validate(
                {"models": {MODEL: {}}, "upstream": f"http://127.0.0.1:{engine.port}", "authentication": False}
                | {"listen": "127.0.0.1:0"}
            )
            service = Watched(runtimes.build(config, b"salt"), LogWriter(io.BytesIO()), Metrics())
            server = await loop.create_server(lambda: ClientConnection(service), "127.0.0.1", 0)
            address.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            ending = asyncio.Event()
            stop.append(lambda: loop.call_soon_threadsafe(ending.set))
            tick = loop.create_task(service.tick())
            ready.set()
            await ending.wait()
            assert not tick.done()
            tick.cancel()
            server.close()

    thread = threading.Thread(target=lambda: uvloop.run(serve("")), daemon=True)
    thread.start()
    assert ready.wait(scaled(10))
    yield address[0], faults
    stop[0]()
    thread.join(10)


SCHEMA = schemathesis.openapi.from_dict(document())


OPERATIONS = {f"{found.ok().method} {found.ok().path}": found.ok() for found in SCHEMA.get_all_operations()}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_documented_api_never_answers_500(name: str, live: tuple[str, list[Exception]]) -> None:
    """schemathesis makes requests from the document, good and bad; only documented answers come back."""
    base, faults = live
    operation = OPERATIONS[name]
    documented = {int(status) for status in operation.definition.raw["responses"]}

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy())
    def check(case: Any) -> None:
        answer = case.call(base_url=base, timeout=scaled(10))
        assert faults == []
        assert answer.status_code in documented
        if answer.status_code >= 400 and case.path != "/ready":
            assert set(answer.json()["error"]) == {"message", "type", "param", "code"}

    check()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]),
    st.sampled_from([route.value for route in Route]) | st.text("/abc?&=%.0", max_size=20).map(lambda t: "/" + t),
    st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(["application/json", "text/plain", "application/json; charset=latin-1"]),
)
def test_any_method_path_and_body(
    live: tuple[str, list[Exception]], method: str, path: str, body: bytes, content_type: str
) -> None:
    base, faults = live
    headers = {"content-type": content_type, "x-backend-key": BACKEND_KEY}
    answer = httpx.request(method, base + path, content=body, headers=headers, timeout=scaled(10))
    assert answer.status_code != 500
    assert faults == []


def test_the_document_lists_exactly_the_routes() -> None:
    assert set(document()["paths"]) == {route.value for route in Route}
    assert document() == document()
