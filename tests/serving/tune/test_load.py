"""What the load says of an engine that refuses."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from huddle.tune.load import Load, Target

HEAD = b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: application/json\r\n"
REASON = b'{"error": "CUDA out\n of memory"}'
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(REASON)


@pytest.fixture
def refusing() -> Iterator[list]:
    """A server that answers everything in these parts and leaves the connection open; its port comes first."""
    answer: list = [0]

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in answer[1:]:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        await reader.read()
        writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        answer[0] = server.sockets[0].getsockname()[1]
        ready.set()

    loop, ready = asyncio.new_event_loop(), threading.Event()
    loop.create_task(serve())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    ready.wait()
    yield answer
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.mark.parametrize(
    "parts",
    [
        (WHOLE + REASON,),
        (WHOLE, REASON),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n", REASON, b"0\r\n\r\n"),
    ],
)
def test_a_refusal_under_load_keeps_its_reason(refusing, parts):
    refusing[1:] = parts
    samples = Load(1).run(Target(refusing[0], "m"), 2, 6)
    assert len(samples) == 2, "a connection that was refused asks nothing more"
    for sample in samples:
        assert sample.error.startswith('500 Internal Server Error: {"error": "CUDA out of memory"}')
        assert sample.ended > sample.began


def test_a_connection_that_is_lost_is_told_as_such():
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listening.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\ndata: x\n\n")
        connection.close()

    threading.Thread(target=serve, daemon=True).start()
    (sample,) = Load(1).run(Target(listening.getsockname()[1], "m"), 1, 1)
    assert sample.error.startswith("connection lost after 1 events")
