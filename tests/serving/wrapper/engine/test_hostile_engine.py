"""Engines that are down, slow, dying or lying: clients get an honest error, or a cut that cannot pass for an end."""

import asyncio
import json

import httpx
import pytest

from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import DONE, MODEL, USAGE, FakeEngine, Received, Reply, saying, streaming, token
from tools.deadlines import scaled

pytestmark = pytest.mark.anyio


def error_of(answer: httpx.Response) -> dict[str, object]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert answer.headers["x-request-id"]
    return error


LIES = {
    "nonsense": b"this is not HTTP\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01",
    "length and chunked": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd",
    "no length": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: x\n\n",
    "a folded header": b"HTTP/1.1 200 OK\r\nx: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"b" * 100_000,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 200 + b"content-length: 0\r\n\r\n",
    "an upgrade": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "a bad status": b"HTTP/1.1 abc OK\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_not_a_whole_response_is_a_502(wrapper: Wrapper, lie: str) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(LIES[lie])
        reply.writer.close()

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.status_code == 502
    assert error_of(answer)["code"] == "engine_broken"
    assert answer.headers["retry-after"]
    wrapper.engine.script = type(wrapper.engine)().script
    assert (await wrapper.chat()).status_code == 200  # and the next request is not touched by it


async def test_an_engine_that_is_down_is_a_503(make_wrapper: MakeWrapper) -> None:
    nobody = FakeEngine()
    nobody.port = 1  # nothing listens there
    wrapper = await make_wrapper(nobody)
    answer = await wrapper.chat(stream=True)
    assert answer.status_code == 503
    assert error_of(answer)["code"] == "engine_unavailable"
    assert int(answer.headers["retry-after"]) > 0
    await wrapper.until(lambda: wrapper.service.running == 0)


async def test_an_engine_that_hangs_up_before_answering(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        reply.reset()

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.status_code == 502
    error_of(answer)


async def test_an_engine_that_says_nothing_is_a_504(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"first_byte_s": 0.5})
    closed = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.closed_by_peer()
        closed.set()

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.status_code == 504
    assert error_of(answer)["code"] == "engine_timeout"
    async with asyncio.timeout(scaled(2)):
        await closed.wait()


async def test_the_whole_time_is_bounded(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"total_s": 1.0})

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        while True:
            await reply.chunk(token("again"))
            await asyncio.sleep(0.05)

    wrapper.engine.script = script
    with pytest.raises(httpx.RemoteProtocolError):
        await wrapper.chat(stream=True)
    assert wrapper.request_lines()[-1]["code"] == "engine_timeout"


DEATHS = ["close", "reset", "silence", "garbage"]


@pytest.mark.parametrize("death", DEATHS)
async def test_a_stream_that_dies_says_so_and_has_no_proper_end(make_wrapper: MakeWrapper, death: str) -> None:
    wrapper = await make_wrapper(timeouts={"idle_s": 0.5})

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("one"))
        await asyncio.sleep(0.1)
        if death == "close":
            reply.writer.close()
        elif death == "reset":
            reply.reset()
        elif death == "silence":
            await reply.closed_by_peer()
        else:
            await reply.raw(b"zzz\r\n")

    wrapper.engine.script = script
    received = b""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with pytest.raises(httpx.RemoteProtocolError):
        async with wrapper.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for chunk in answer.aiter_raw():
                received += chunk
    assert received.startswith(token("one"))
    assert DONE not in received
    error = json.loads(received.removeprefix(token("one")).removeprefix(b"data: "))["error"]
    assert error["type"] == "upstream_error"
    line = wrapper.request_lines()[-1]
    assert line["end"] == "truncated"


async def test_a_stream_that_dies_inside_an_event_ends_after_the_one_before(wrapper: Wrapper) -> None:
    """Half an event is not passed on: it could be half of an error, and our own error would be read as its rest."""

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("one") + b'data: {"cho')
        await asyncio.sleep(0.1)
        reply.writer.close()

    wrapper.engine.script = script
    received = b""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with pytest.raises(httpx.RemoteProtocolError):
        async with wrapper.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for chunk in answer.aiter_raw():
                received += chunk
    assert received.startswith(token("one"))
    error = json.loads(received.removeprefix(token("one")).removeprefix(b"data: "))["error"]
    assert error["code"] == "engine_broken"


async def test_a_plain_answer_that_is_cut_is_a_502(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        reply.writer.close()

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert (answer.status_code, error_of(answer)["code"]) == (502, "engine_broken")


async def test_a_plain_answer_without_end_is_a_502(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999999999\r\n\r\n")
        while not reply.writer.is_closing():
            await reply.raw(b" " * 1_000_000)

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert (answer.status_code, error_of(answer)["code"]) == (502, "engine_broken")
    assert "ask for a stream" in answer.text


async def test_a_large_plain_answer_is_judged_beside_the_loop(wrapper: Wrapper) -> None:
    wrapper.engine.script = saying({"choices": [{"message": {"content": "x" * 3_000_000}}], "usage": USAGE})
    answer = await wrapper.chat()
    assert len(answer.json()["choices"][0]["message"]["content"]) == 3_000_000
    assert wrapper.request_lines()[-1]["completion_tokens"] == USAGE["completion_tokens"]


async def test_bytes_after_an_answer_are_not_the_next_answer(wrapper: Wrapper) -> None:
    """Response smuggling: an engine's surplus must not become another client's answer."""
    poison = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 8\r\n\r\n{"id":1}'

    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}" + poison)
        await asyncio.sleep(0.05)

    wrapper.engine.script = script
    for _ in range(5):
        answer = await wrapper.chat()
        assert answer.content == b"{}"


async def test_an_engine_that_speaks_unasked_is_dropped(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"created": 1, "usage": USAGE})
        await asyncio.sleep(0.05)
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 6\r\n\r\npoison")

    wrapper.engine.script = script
    assert (await wrapper.chat()).json()["created"] == 1
    await asyncio.sleep(0.2)
    assert (await wrapper.chat()).json()["created"] == 1


async def test_interim_answers_are_swallowed(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        await asyncio.sleep(0.05)
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    assert (await wrapper.chat()).json() == {"usage": USAGE}


@pytest.mark.parametrize("status", [404, 405])
async def test_a_route_that_the_engine_lacks_is_an_error_in_openais_shape(wrapper: Wrapper, status: int) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"detail": "Not Found"}, status=status)

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("not_found", "not_found_error")
    assert error["message"] == "the engine of this model does not offer /v1/chat/completions"


async def test_the_engines_head_does_not_come_through(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({}, headers="server: uvicorn\r\nset-cookie: a=b\r\nx-request-id: other\r\nkeep-alive: 5\r\n")

    wrapper.engine.script = script
    answer = await wrapper.chat(headers={"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert not {"server", "set-cookie", "keep-alive"} & set(answer.headers)


async def test_an_engine_that_wants_a_key_is_our_fault_not_the_clients(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"error": "Unauthorized"}, status=401)

    wrapper.engine.script = script
    answer = await wrapper.chat()
    assert answer.status_code == 502
    error_of(answer)


async def test_what_is_no_event_of_the_route_is_not_passed_on(wrapper: Wrapper) -> None:
    """Neither comments nor other fields of events; what is not JSON is an error, also at the end."""
    junk = b'data\n\n:\n\n\n\nid: 1\nevent: x\ndata: [DONE]\n\ndata: {not json\n\nno end\ndata: "x'
    wrapper.engine.script = streaming(junk)
    events = (await wrapper.chat(stream=True)).content.split(b"\n\n")
    assert events[0] == b"data: [DONE]"
    assert [json.loads(event[6:])["error"]["code"] for event in events[1:-1]] == ["engine_error"] * 2
    await wrapper.until(lambda: wrapper.service.running == 0)
    assert "huddle_wrapper_usage_missing_total 1.0" in wrapper.metrics()


async def test_an_event_without_end_is_an_error_and_does_not_fill_the_memory(wrapper: Wrapper) -> None:
    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(300):
            await reply.chunk(b"x" * 100_000)
        await reply.chunk(b"\n\n" + token("after"))
        await reply.end()

    wrapper.engine.script = script
    held = 0
    got = b""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with wrapper.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        async for chunk in answer.aiter_raw():
            got += chunk
            for exchange in wrapper.service._exchanges:
                held = max(held, sum(map(len, exchange._meter._held)))
    error, _, after = got.partition(b"\n\n")
    assert json.loads(error[6:])["error"]["code"] == "engine_error"
    assert after == token("after")
    assert held < 5_000_000
