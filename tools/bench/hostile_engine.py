"""An engine for `tools/bench/abuse.py`: what a request holds decides how it is answered.

`abuse:silent` is never answered, `abuse:flood` with 64 MiB of events as fast as they are taken, `abuse:plain` with
30 KB at once; all else with an event each 20 ms: for ever, or as many as the second argument says.
"""

import asyncio
import json
import sys
from typing import cast

import httptools
import uvloop

_PLAIN = json.dumps({"choices": [{"message": {"content": "a" * 30_000}}]}).encode()
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}\n\n'
)
_DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_FRAMED = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_FLOOD = b"%x\r\n%b\r\n" % (256 * len(_EVENT), 256 * _EVENT)
_FLOOD_CHUNKS = 1_600


class Engine(asyncio.Protocol):
    """One connection."""

    events: float = float("inf")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The wrapper has connected."""
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._tail = b""
        self._kind = b""
        self._timer: asyncio.TimerHandle | None = None
        self._flooding = 0

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The wrapper has left."""
        if self._timer is not None:
            self._timer.cancel()
        self._flooding = 0

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Called by httptools."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """Called by httptools. Only the word is kept, not the body."""
        joined = self._tail + body
        at = joined.find(b"abuse:")
        if at >= 0:
            self._kind = joined[at + 6 : at + 12].rstrip(b'"')
        self._tail = joined[-12:]

    def on_message_complete(self) -> None:
        """A whole request is there."""
        kind, self._kind, self._tail = self._kind, b"", b""
        if self._url == b"/health":
            self._plain(b"{}")
        elif self._url == b"/v1/models":
            self._plain(json.dumps({"data": [{"id": "bench", "max_model_len": 4_000_000}]}).encode())
        elif kind.startswith(b"plain"):
            self._plain(_PLAIN)
        elif kind.startswith(b"flood"):
            self._transport.write(_HEAD % b"text/event-stream")
            self._flooding = _FLOOD_CHUNKS
            self.resume_writing()
        elif not kind.startswith(b"silent"):
            self._transport.write(_HEAD % b"text/event-stream")
            self._left = self.events
            self._tick()

    def pause_writing(self) -> None:
        """The wrapper reads slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """It reads again."""
        self._paused = False
        while self._flooding and not self._paused:
            self._flooding -= 1
            self._transport.write(_FLOOD if self._flooding else b"0\r\n\r\n")

    def _tick(self) -> None:
        if not self._left:
            self._transport.write(_DONE)
            return
        self._left -= 1
        self._transport.write(_FRAMED)
        self._timer = asyncio.get_running_loop().call_later(0.02, self._tick)

    def _plain(self, body: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


async def _main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        Engine.events = int(sys.argv[2])
    uvloop.run(_main(int(sys.argv[1])))
