"""What goes through: bytes of streams and answers, headers, errors of the engine, slow and leaving clients."""

import asyncio
import hashlib
import io
import json
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.wrapper import runtime as runtimes
from huddle.wrapper.access.auth import keyed_hash, new_key
from huddle.wrapper.config import WrapperConfig
from huddle.wrapper.http.connection import ClientConnection, _http_date
from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics
from huddle.wrapper.server import listen
from huddle.wrapper.service import WrapperService
from tools.deadlines import scaled

from .conftest import BACKEND_KEY, PROMPT, MakeWrapper, Wrapper
from .fake_engine import DONE, MODEL, USAGE, USAGE_EVENT, FakeEngine, Received, Reply, stream_bytes, token

pytestmark = pytest.mark.anyio


def chat_request(port: int, *, stream: bool = True, **fields: object) -> bytes:
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **fields})
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-backend-key: {BACKEND_KEY}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def test_f21_the_hash_of_the_prompt_is_for_operators_and_the_gateway(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products={"team": {"keys": [{"name": "alice", "sha256": digest}]}})
    assert "x-huddle-prompt-sha256" in (await wrapper.chat()).headers
    del wrapper.http.headers["x-backend-key"]
    answer = await wrapper.chat(headers={"authorization": f"Bearer {key}"})
    assert answer.headers["x-huddle-prompt-id"] == "test-prompt"
    assert "x-huddle-prompt-sha256" not in answer.headers


async def test_a_plain_answer_is_the_engines_bytes(wrapper: Wrapper) -> None:
    answer = await wrapper.chat()
    assert answer.status_code == 200
    assert answer.json()["usage"] == USAGE
    assert answer.headers["x-huddle-prompt-id"] == "test-prompt"
    assert answer.headers["x-huddle-prompt-sha256"] == keyed_hash(
        BACKEND_KEY, hashlib.sha256(PROMPT.encode()).hexdigest()
    )
    assert float(answer.headers["x-huddle-overhead-ms"]) > 0
    sent = wrapper.engine.completions[0].json
    assert sent["messages"] == [{"role": "system", "content": PROMPT}, {"role": "user", "content": "hi"}]


@given(second=st.integers(0, 2**32))
def test_the_date_is_written_as_the_standard_says(second: int) -> None:
    assert _http_date(second) == formatdate(second, usegmt=True)


async def test_a_stream_is_byte_for_byte_the_engines_own(wrapper: Wrapper) -> None:
    asked = await wrapper.chat(stream=True, max_tokens=50, stream_options={"include_usage": True})
    assert asked.content == stream_bytes(50, usage=True)
    not_asked = await wrapper.chat(stream=True, max_tokens=50)
    assert not_asked.content == stream_bytes(50, usage=False)
    assert all(request.json["stream_options"] == {"include_usage": True} for request in wrapper.engine.completions)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("asked", [True, False])
async def test_a_stream_cut_anywhere_is_the_same_bytes(wrapper: Wrapper, size: int, asked: bool) -> None:
    whole = stream_bytes(40, usage=True)

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for at in range(0, len(whole), size):
            await reply.chunk(whole[at : at + size])
        await reply.end()

    wrapper.engine.script = script
    answer = await wrapper.chat(stream=True, stream_options={"include_usage": asked})
    assert answer.content == stream_bytes(40, usage=asked)
    usage = wrapper.request_lines()[0]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (11, 5)


async def test_each_piece_is_passed_on_at_once(wrapper: Wrapper) -> None:
    """The engine sends the next chunk only when the client has the last: buffering anywhere would hang."""
    seen = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for i in range(20):
            await reply.chunk(token(f"t{i}"))
            await seen.wait()
            seen.clear()
        await reply.end()

    wrapper.engine.script = script
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with wrapper.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        chunks = []
        async for chunk in answer.aiter_raw():
            chunks.append(chunk)
            seen.set()
    assert chunks == [token(f"t{i}") for i in range(20)]


async def test_connections_are_used_again(wrapper: Wrapper) -> None:
    await wrapper.until(lambda: wrapper.service.engines.problem is None)
    before = wrapper.engine.connections
    for _ in range(10):
        assert (await wrapper.chat()).status_code == 200
    probes = sum(request.path == "/health" for request in wrapper.engine.requests)
    assert wrapper.engine.connections - before <= 1 + probes


async def test_an_engine_that_closed_an_idle_connection_is_asked_again(wrapper: Wrapper) -> None:
    async def close_after(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE})
        await asyncio.sleep(0)
        reply.writer.close()

    wrapper.engine.script = close_after
    for _ in range(20):
        assert (await wrapper.chat()).status_code == 200


async def test_a_hundred_megabytes_go_through_in_bounded_memory(wrapper: Wrapper) -> None:
    block = token("x" * 1_000_000)

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(100):
            await reply.chunk(block)
        await reply.end()

    wrapper.engine.script = script
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    size = 0
    digest = hashlib.sha256()
    async with wrapper.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for chunk in answer.aiter_raw():
            size += len(chunk)
            digest.update(chunk)
    assert size == 100 * len(block)
    assert digest.hexdigest() == hashlib.sha256(block * 100).hexdigest()


async def test_a_slow_reader_slows_the_engine_down(wrapper: Wrapper) -> None:
    """Flow control: what lies between the engine and a client that does not read is bounded."""
    sent = 0
    block = token("x" * 100_000)

    async def script(request: Received, reply: Reply) -> None:
        nonlocal sent
        await reply.stream_head()
        while True:
            await reply.chunk(block)
            sent += len(block)

    wrapper.engine.script = script
    reader, writer = await asyncio.open_connection("127.0.0.1", wrapper.port, limit=1024)
    writer.write(chat_request(wrapper.port, stream=True))
    await reader.readline()
    previous = -1
    while sent != previous:  # until the engine is stuck
        previous = sent
        await asyncio.sleep(0.3)
    assert sent < 50_000_000  # kernel buffers of two connections on loopback, and ours
    exchange = next(iter(wrapper.service._exchanges))
    assert exchange.connection._transport.get_write_buffer_size() < 1_000_000
    writer.close()
    await wrapper.until(lambda: wrapper.service.running == 0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_the_engine(wrapper: Wrapper, stream: bool) -> None:
    stopped = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        if stream:
            await reply.stream_head()
            await reply.chunk(token("one"))
        await reply.closed_by_peer()
        stopped.set()

    wrapper.engine.script = script
    reader, writer = await wrapper.connect()
    writer.write(chat_request(wrapper.port, stream=stream))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    if stream:
        await reader.readuntil(b"one")
    writer.close()
    async with asyncio.timeout(scaled(2)):  # the issue's own bound
        await stopped.wait()
    await wrapper.until(lambda: wrapper.service.running == 0)
    assert wrapper.service.admission.running == 0
    assert wrapper.request_lines()[-1]["end"] == "client_gone"


async def test_a_client_that_half_closes_counts_as_gone(wrapper: Wrapper) -> None:
    stopped = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.closed_by_peer()
        stopped.set()

    wrapper.engine.script = script
    _, writer = await wrapper.connect()
    writer.write(chat_request(wrapper.port))
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    writer.write_eof()
    async with asyncio.timeout(scaled(2)):
        await stopped.wait()
    writer.close()


async def test_silence_before_the_first_token_is_filled_with_comments(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"keepalive_s": 0.3})
    go = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await go.wait()
        await reply.chunk(token("one"))
        await asyncio.sleep(1.0)  # silence inside a stream is the engine's own
        await reply.chunk(DONE)
        await reply.end()

    wrapper.engine.script = script
    reader, writer = await wrapper.connect()
    writer.write(chat_request(wrapper.port))
    async with asyncio.timeout(scaled(5)):
        await reader.readuntil(b": keep-alive\n\n")
        await reader.readuntil(b": keep-alive\n\n")
        go.set()
        rest = await reader.readuntil(b"0\r\n\r\n")
    first_token = rest.index(b"data:")
    assert b": keep-alive" not in rest[first_token:]
    writer.close()


async def test_comments_are_invisible_to_a_client(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"keepalive_s": 0.2})

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await asyncio.sleep(0.8)
        for chunk in (token("a"), token("b"), USAGE_EVENT, DONE):
            await reply.chunk(chunk)
        await reply.end()

    wrapper.engine.script = script
    answer = await wrapper.chat(stream=True)
    assert answer.content.replace(b": keep-alive\n\n", b"") == token("a") + token("b") + DONE


async def test_the_request_id_goes_all_the_way(wrapper: Wrapper) -> None:
    answer = await wrapper.chat(headers={"x-request-id": "abc-123"})
    assert answer.headers["x-request-id"] == "abc-123"
    assert wrapper.engine.completions[0].headers["x-request-id"] == "abc-123"
    other = await wrapper.chat(headers={"x-request-id": 'bad "id" {}'})
    assert other.headers["x-request-id"] != 'bad "id" {}'
    assert wrapper.request_lines()[-2]["request_id"] == "abc-123"


async def test_nothing_of_the_clients_head_reaches_the_engine(wrapper: Wrapper) -> None:
    await wrapper.chat(
        headers={"x-evil": "1", "authorization": "Bearer secret", "cookie": "a=b", "x-huddle-tenant": "t"}
    )
    assert set(wrapper.engine.completions[0].headers) == {"host", "content-type", "content-length", "x-request-id"}


async def test_a_large_request_is_prepared_beside_the_streams(wrapper: Wrapper) -> None:
    """Over 256 KiB the work is done in a thread; the result is the same."""
    text = "word " * 400_000
    answer = await wrapper.chat(messages=[{"role": "user", "content": text}])
    assert answer.status_code == 200
    assert wrapper.engine.completions[0].json["messages"][1]["content"] == text
    refused = await wrapper.chat(messages=[{"role": "king", "content": text}])
    assert refused.status_code == 400


async def test_unix_sockets_on_both_sides(tmp_path: Path) -> None:
    engine = FakeEngine()
    server = await asyncio.start_unix_server(engine.handle, str(tmp_path / "engine.sock"))
    settings = {
        "listen": f"unix:{tmp_path}/wrapper.sock",
        "upstream": f"unix:{tmp_path}/engine.sock",
        "authentication": False,
        "models": {MODEL: {}},
    }
    service = WrapperService(
        runtimes.build(WrapperConfig.model_validate(settings), b"salt"), LogWriter(io.BytesIO()), Metrics()
    )
    listening = listen(f"unix:{tmp_path}/wrapper.sock", shared=False)
    front = await asyncio.get_running_loop().create_unix_server(lambda: ClientConnection(service), sock=listening)
    transport = httpx.AsyncHTTPTransport(uds=f"{tmp_path}/wrapper.sock")
    async with httpx.AsyncClient(transport=transport, base_url="http://huddle", timeout=scaled(10)) as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.content == stream_bytes(5, usage=False)
    front.close()
    server.close()
