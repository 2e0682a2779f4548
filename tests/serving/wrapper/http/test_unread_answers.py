"""Answers that nobody reads count as their caller's memory, and do not wait for ever (F10)."""

import asyncio
import socket

import pytest

from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import USAGE, Received, Reply
from tests.serving.wrapper.http.raw_requests import SMALL, head, holders, status
from tools.deadlines import scaled


async def unread(wrapper: Wrapper) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose client takes in little."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", wrapper.port))
    return await asyncio.open_connection(sock=made, limit=1_024)


@pytest.mark.anyio
async def test_f10_who_does_not_read_gets_no_further_answer(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products)

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 200_000}]})

    wrapper.engine.script = script
    reader, writer = await unread(wrapper)
    asked = 0
    connection = None
    while connection is None or not connection.stalled:
        writer.write(head(keys["alice"], len(SMALL)) + SMALL)
        asked += 1
        await wrapper.until(lambda n=asked: len(wrapper.engine.completions) == n and wrapper.service.running == 0)
        (connection,) = wrapper.service._seats
    assert wrapper.service.ledger.held > 0  # what waits for the reader has an owner
    writer.write(head(keys["alice"], len(SMALL)) + SMALL)
    await asyncio.sleep(0.3)
    assert len(wrapper.engine.completions) == asked
    received = b""
    async with asyncio.timeout(scaled(20)):
        while received.count(b"HTTP/1.1 200") < asked + 1 or not received.endswith(b"}"):
            received += await reader.read(100_000)
    assert len(wrapper.engine.completions) == asked + 1
    assert wrapper.service.ledger.held == 0
    writer.close()


@pytest.mark.anyio
async def test_f10_a_client_that_never_reads_its_last_answer_is_cut(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"client_stall_s": 0.5, "client_idle_s": 3_600})

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 5_000_000}]})

    wrapper.engine.script = script
    key = "x-backend-key: backend-key-0123456789abcdef"
    _, writer = await unread(wrapper)
    writer.write(head("", len(SMALL), key) + SMALL)
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    await wrapper.until(lambda: len(wrapper.service._seats) == 0, 10)
    assert wrapper.service.ledger.held == 0
    writer.close()


@pytest.mark.anyio
async def test_answers_that_wait_for_readers_stay_within_their_owners_part(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    limits = {"body_bytes": 10_000, "buffered_bytes": 4_000_000, "buffered_bytes_per_caller": 500_000}
    wrapper = await make_wrapper(products=products, limits=limits)

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 8_000_000}]})

    wrapper.engine.script = script
    clients = [await unread(wrapper) for _ in range(12)]
    for _, writer in clients:
        writer.write(head(keys["alice"], len(SMALL)) + SMALL)
    await wrapper.until(lambda: len(wrapper.engine.completions) == 12)
    await wrapper.until(lambda: len(wrapper.service._seats) < 12)  # some were cut for the others
    assert 0 < wrapper.service.ledger.held <= 500_000
    wrapper.engine.script = type(wrapper.engine)().script
    assert await status(wrapper, head(keys["bob"], len(SMALL)) + SMALL) == 200
    for _, writer in clients:
        writer.close()


@pytest.mark.anyio
async def test_the_engine_keeps_most_of_what_nobody_reads(make_wrapper: MakeWrapper) -> None:
    """Else a client that never reads would have the kernel hold megabytes for it on both sides of us."""
    wrapper = await make_wrapper()
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n' % (b"a" * 60_000)

    async def script(_request: Received, reply: Reply) -> None:
        await reply.stream_head()
        for _ in range(200):
            await reply.chunk(event)
        await reply.end()

    wrapper.engine.script = script
    assert (await wrapper.chat(stream=True)).text.count("data: ") == 200
    upstream = wrapper.service.engines.all[0].pool.take_idle()
    assert upstream is not None
    receiving = upstream._transport.get_extra_info("socket")  # which Linux lets grow to megabytes for who reads fast
    assert receiving.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * 64 * 1024  # it doubles what is asked
    upstream.abort()
