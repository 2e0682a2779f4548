"""The network edge: smuggling, pipelining, slow and greedy clients, oversize everything. Nothing ambiguous goes on."""

import asyncio
import gc
import json
import re

import pytest

from huddle.wrapper.http.http1 import RequestReader
from huddle.wrapper.http.upstream import Address, UpstreamConnection
from tools.deadlines import scaled

from .conftest import BACKEND_KEY, MakeWrapper, Wrapper
from .fake_engine import MODEL, USAGE, Received, Reply

pytestmark = pytest.mark.anyio

BODY = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]})
HEAD = (
    f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nx-backend-key: {BACKEND_KEY}\r\n"
    "content-type: application/json\r\n"
)
GOOD = f"{HEAD}content-length: {len(BODY)}\r\n\r\n{BODY}"
CHUNKED = f"{HEAD}transfer-encoding: chunked\r\n\r\n"
MANY = "x-a: b\r\n" * 100
HIDDEN = "GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"

REFUSED = {
    "length and chunked": f"{HEAD}content-length: {len(BODY)}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "chunked and length": f"{HEAD}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n{HIDDEN}",
    "two lengths": f"{HEAD}content-length: {len(BODY)}\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "two different lengths": f"{HEAD}content-length: 0\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "a list of lengths": f"{HEAD}content-length: {len(BODY)}, {len(BODY)}\r\n\r\n{BODY}",
    "a signed length": f"{HEAD}content-length: +{len(BODY)}\r\n\r\n{BODY}",
    "a negative length": f"{HEAD}content-length: -1\r\n\r\n{BODY}",
    "a hex length": f"{HEAD}content-length: 0x10\r\n\r\n{BODY}",
    "a huge length": f"{HEAD}content-length: 99999999999999999999\r\n\r\n",
    "space before the colon": f"{HEAD}content-length : {len(BODY)}\r\n\r\n{BODY}",
    "a folded header": f"{HEAD}x-a: b\r\n c\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "a folded length": f"{HEAD}content-length:\r\n {len(BODY)}\r\n\r\n{BODY}",
    "bare line feeds": GOOD.replace("\r\n", "\n"),
    "one bare line feed": GOOD.replace("host: a\r\n", "host: a\n"),
    "a bare carriage return": f"{HEAD}x-a: b\rtransfer-encoding: chunked\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "a null in a header": f"{HEAD}x-a: b\0\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "gzip, chunked": f"{HEAD}transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": f"{HEAD}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "two codings": f"{HEAD}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": f"{HEAD}transfer-encoding: identity\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "xchunked": f"{HEAD}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a vertical tab before chunked": f"{HEAD}transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "a chunk that lies": f"{CHUNKED}3\r\nabcdef\r\n0\r\n\r\n",
    "a signed chunk size": f"{CHUNKED}+3\r\nabc\r\n0\r\n\r\n",
    "a hex prefix": f"{CHUNKED}0x3\r\nabc\r\n0\r\n\r\n",
    "an overflowing chunk size": f"{CHUNKED}fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "a line feed after the chunk size": f"{CHUNKED}3\nabc\r\n0\r\n\r\n",
    "an absolute target": GOOD.replace("/v1/chat", "http://127.0.0.1:5005/v1/chat", 1),
    "an asterisk target": "OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
    "connect": "CONNECT 127.0.0.1:5005 HTTP/1.1\r\nhost: a\r\n\r\n",
    "an upgrade": f"{HEAD}connection: upgrade\r\nupgrade: h2c\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "a websocket": "GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    "http/2 by prior knowledge": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http/0.9": "GET /v1/models\r\n\r\n",
    "http/1.2": GOOD.replace("HTTP/1.1", "HTTP/1.2"),
    "chunked in http/1.0": f"{CHUNKED}0\r\n\r\n".replace("HTTP/1.1", "HTTP/1.0"),
    "no host": GOOD.replace("host: a\r\n", ""),
    "two hosts": GOOD.replace("host: a\r\n", "host: a\r\nhost: b\r\n"),
    "two keys": GOOD.replace("host: a\r\n", f"host: a\r\nx-backend-key: {BACKEND_KEY}\r\n"),
    "two content types": GOOD.replace("host: a\r\n", "host: a\r\ncontent-type: text/plain\r\n"),
    "a compressed body": GOOD.replace("host: a\r\n", "host: a\r\ncontent-encoding: gzip\r\n"),
    "a strange expectation": GOOD.replace("host: a\r\n", "host: a\r\nexpect: the-unexpected\r\n"),
    "a body on a get": GOOD.replace("POST /v1/chat/completions", "GET /v1/models"),
    "a control character in the target": GOOD.replace("/v1/chat", "/v1/\tchat"),
    "a header without a name": f"{HEAD}: x\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "a very long target": GOOD.replace("completions", "completions?" + "a" * 3000),
    "a very long header": f"{HEAD}x-a: {'b' * 40_000}\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}",
    "many headers": f"{HEAD}{MANY}content-length: {len(BODY)}\r\n\r\n{BODY}",
    "many trailers": f"{CHUNKED}3\r\nabc\r\n0\r\n{MANY}\r\n",
    "a body over the limit": f"{HEAD}content-length: 10000000\r\n\r\n",
    "random bytes": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 50,
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_is_ambiguous_or_absurd_is_refused_and_goes_no_further(wrapper: Wrapper, case: str) -> None:
    answer = await wrapper.raw(REFUSED[case].encode("latin-1"))
    status = answer.split(b" ", 2)[1]
    assert status.startswith(b"4") or status in (b"501", b"505"), answer
    assert len(re.findall(rb"HTTP/1.1 \d\d\d ", answer)) == 1  # nothing hidden in the body was answered
    assert b"connection: close" in answer
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert wrapper.engine.completions == []


async def test_a_good_request_is_answered_so_the_table_above_means_something(wrapper: Wrapper) -> None:
    reader, writer = await wrapper.connect()
    for request in (GOOD, f"{CHUNKED}{len(BODY):x};ext=1\r\n{BODY}\r\n0\r\nx-trailer: a\r\n\r\n", "\r\n" + GOOD):
        writer.write(request.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        await reader.readuntil(b'"total_tokens":16}}')
    writer.close()
    assert len(wrapper.engine.completions) == 3


async def test_every_byte_may_come_alone(wrapper: Wrapper) -> None:
    reader, writer = await wrapper.connect()
    for byte in f"{CHUNKED}{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n".encode():
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_the_engine_gets_what_was_checked_not_what_was_sent(wrapper: Wrapper) -> None:
    spaced = '{ "model" : "tiny" ,\t"messages":[{"role":"user","content":"h\\u00e9llo","junk":1}], "unknown": {"a":1} }'
    await wrapper.http.post("/v1/chat/completions", content=spaced, headers={"content-type": "application/json"})
    received = wrapper.engine.completions[0]
    assert received.headers["content-length"] == str(len(received.body))
    assert b"junk" not in received.body
    assert b"unknown" not in received.body
    assert "héllo".encode() in received.body
    assert received.raw.split(b"\r\n")[0] == b"POST /v1/chat/completions HTTP/1.1"


async def test_pipelined_requests_are_not_answered_out_of_turn(wrapper: Wrapper) -> None:
    """The first is answered, then the connection closes: what follows was never begun, so a client may repeat it."""
    answer = await wrapper.raw((GOOD + GOOD + HIDDEN).encode())
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"connection: close" in answer
    assert len(wrapper.engine.completions) == 1


async def test_a_request_sent_during_an_answer_is_not_begun_either(wrapper: Wrapper) -> None:
    release = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await release.wait()
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    reader, writer = await wrapper.connect()
    writer.write(GOOD.encode())
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    writer.write(GOOD.encode())
    await asyncio.sleep(0.1)
    release.set()
    async with asyncio.timeout(scaled(10)):
        answer = await reader.read()  # until the wrapper closes
    writer.close()
    assert answer.count(b"HTTP/1.1 200") == 1
    assert len(wrapper.engine.completions) == 1


async def test_a_client_that_talks_on_during_its_answer_is_cut_off(wrapper: Wrapper) -> None:
    release = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await release.wait()
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    _, writer = await wrapper.connect()
    writer.write(GOOD.encode())
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    with pytest.raises(ConnectionError):
        for _ in range(1000):
            writer.write(b"x" * 10_000)
            await writer.drain()
            await asyncio.sleep(0)
    await wrapper.until(lambda: wrapper.service.running == 0)
    release.set()
    writer.close()


@pytest.mark.parametrize(
    ("sent", "settings"),
    [
        ("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n", {"client_head_s": 0.5}),
        (f"{HEAD}content-length: 100\r\n\r\nabc", {"client_body_s": 0.5}),
    ],
)
async def test_slow_requests_end(make_wrapper: MakeWrapper, sent: str, settings: dict[str, float]) -> None:
    wrapper = await make_wrapper(timeouts=settings)
    reader, writer = await wrapper.connect()
    writer.write(sent.encode())

    async def drip() -> None:
        while True:
            writer.write(b"a")
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    async with asyncio.timeout(scaled(5)):
        answer = await reader.read()
    dripping.cancel()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408")


async def test_idle_connections_end_quietly(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"client_idle_s": 0.3})
    assert await wrapper.raw(b"") == b""


async def test_a_client_that_never_reads_is_cut(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"client_stall_s": 0.5})
    closed = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000000000\r\n\r\n")
        try:
            while True:
                await reply.raw(b"x" * 100_000)
        except ConnectionError:
            closed.set()

    wrapper.engine.script = script
    _, writer = await asyncio.open_connection("127.0.0.1", wrapper.port, limit=1024)
    writer.write(GOOD.encode())
    async with asyncio.timeout(scaled(5)):
        await closed.wait()
    writer.close()


async def test_more_connections_than_allowed_are_closed(make_wrapper: MakeWrapper) -> None:
    """Those that have a request are never closed for a newcomer."""
    wrapper = await make_wrapper(limits={"connections": 5})
    open_ones = [await wrapper.connect() for _ in range(5)]
    for _, other in open_ones:
        other.write(f"{HEAD}content-length: 100\r\n\r\n".encode())
    await wrapper.until(lambda: len(wrapper.service._seats._origins.idle) == 0 and len(wrapper.service._seats) == 5)
    reader, writer = await wrapper.connect()
    with pytest.raises(ConnectionError):
        writer.write(GOOD.encode())
        if await reader.read() == b"":
            raise ConnectionError
    for _, other in open_ones:
        other.close()


async def test_all_bodies_together_are_bounded(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"buffered_bytes": 160_000, "body_bytes": 120_000})
    half = f"{HEAD}content-length: 120000\r\n\r\n".encode() + b" " * 100_000
    _, holder = await wrapper.connect()
    holder.write(half)
    await wrapper.until(lambda: wrapper.service.ledger.held == 100_000)
    answer = await wrapper.raw(half)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"retry-after" in answer
    holder.close()
    await wrapper.until(lambda: wrapper.service.ledger.held == 0)
    assert (await wrapper.chat()).status_code == 200


async def test_a_body_without_length_stops_at_the_limit(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"body_bytes": 10_000})
    answer = await wrapper.raw(CHUNKED.encode() + b"1000\r\n" + b" " * 4096 + b"\r\n" + b"2000\r\n" + b" " * 8192)
    assert answer.startswith(b"HTTP/1.1 413")


async def test_chunk_framing_cannot_outweigh_the_body(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"body_bytes": 10_000})
    answer = await wrapper.raw(CHUNKED.encode() + b"1;" + b"e" * 300_000)
    assert answer.startswith(b"HTTP/1.1 413")


async def test_expect_continue(wrapper: Wrapper) -> None:
    reader, writer = await wrapper.connect()
    head = f"{HEAD}expect: 100-continue\r\ncontent-length: {len(BODY)}\r\n\r\n"
    writer.write(head.encode())
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(BODY.encode())
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    refused = await wrapper.raw(head.replace(BACKEND_KEY, "wrong-key-wrong-key").encode())
    assert refused.startswith(b"HTTP/1.1 401")  # before any of the body was asked for


@pytest.mark.parametrize("stream", [True, False])
async def test_http_1_0_gets_an_answer_without_chunks(wrapper: Wrapper, stream: bool) -> None:
    body = json.dumps({**json.loads(BODY), "stream": stream})
    request = f"{HEAD}content-length: {len(body)}\r\n\r\n{body}".replace("HTTP/1.1", "HTTP/1.0")
    answer = await wrapper.raw(request.encode())
    head, _, received = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert received.endswith(b"[DONE]\n\n" if stream else b"}")


async def test_head_requests_have_no_body(wrapper: Wrapper) -> None:
    answer = await wrapper.raw(b"HEAD /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


def living(kind: type) -> int:
    gc.collect()
    return sum(isinstance(thing, kind) for thing in gc.get_objects())


async def test_nothing_is_left_of_requests_and_probes_that_have_ended(make_wrapper: MakeWrapper) -> None:
    """Neither readers, nor connections to an engine that never closes any."""
    wrapper = await make_wrapper()
    before = living(RequestReader), living(UpstreamConnection)
    for request in ("GET /v1/models HTTP/1.1\r\nhost: a\r\n", "nonsense\r\n\r\n", HIDDEN, GOOD):
        for _ in range(20):
            _, writer = await wrapper.connect()
            writer.write(request.encode())
            await asyncio.sleep(0.005)
            writer.close()
    for _ in range(20):
        await wrapper.service.engines.all[0].probe.ask()
        await wrapper.chat()
    await wrapper.until(lambda: wrapper.engine.open <= 1)  # the one that is kept for the next request
    wrapper.service.engines.all[0].pool.address = Address("127.0.0.1", 1)  # nothing listens there
    wrapper.service.engines.all[0].pool.close()
    for _ in range(20):
        await wrapper.service.engines.all[0].probe.ask()
    await wrapper.until(lambda: wrapper.service.running == 0)
    open_now = 3
    await wrapper.until(lambda: living(RequestReader) <= before[0] + open_now)
    await wrapper.until(lambda: living(UpstreamConnection) <= before[1] + open_now)


async def test_engine_connections_that_nobody_needs_are_closed(wrapper: Wrapper) -> None:
    release = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await release.wait()
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    asked = [asyncio.create_task(wrapper.chat()) for _ in range(5)]
    await wrapper.until(lambda: len(wrapper.engine.completions) == 5)
    release.set()
    await asyncio.gather(*asked)
    pool = wrapper.service.engines.all[0].pool
    assert len(pool._idle) == 5
    for connection in pool._idle[:4]:
        connection.idle_since -= 3600
    await wrapper.until(lambda: len(pool._idle) == 1)
    await wrapper.until(lambda: wrapper.engine.open <= 2)
