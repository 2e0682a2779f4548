"""A backend that streams server-sent events on a clock, at as little cost as a Python process can.

Each answer has `--chunks` events of about 150 bytes, the first at once, then one every `--interval-ms`, then the usage
event when it was asked for, and `[DONE]`.
"""

import argparse
import asyncio
import json
import sys
from typing import cast

import httptools
import uvloop

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_DONE = b"data: [DONE]\n\n"
MODEL = "bench"


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


_BASE = {"id": "chatcmpl-0123456789abcdef", "object": "chat.completion.chunk", "created": 1_795_000_000, "model": MODEL}
TOKEN = _event(_BASE | {"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}]})
LAST = _event(_BASE | {"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": "length"}]})
USAGE = _event(_BASE | {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 50, "total_tokens": 70}})


def framed(data: bytes) -> bytes:
    """One chunk of a body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(value: object) -> bytes:
    """A whole answer of JSON."""
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


def models(max_model_len: int) -> dict[str, object]:
    """What `/v1/models` answers."""
    return {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": max_model_len}]}


class Backend(asyncio.Protocol):
    """One connection."""

    chunks = 50
    interval_s = 0.02

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._parser = httptools.HttpRequestParser(self)
        self._timer: asyncio.TimerHandle | None = None
        self._url = b""
        self._body: list[bytes] = []

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The client has left."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Called by httptools."""
        self._url = url

    def on_body(self, body: bytes) -> None:
        """Called by httptools."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A whole request is there."""
        body, self._body = b"".join(self._body), []
        if self._url == b"/health":
            self._transport.write(plain({}))
        elif self._url == b"/v1/models":
            self._transport.write(plain(models(4096)))
        else:
            usage = bool((json.loads(body).get("stream_options") or {}).get("include_usage"))
            self._loop = asyncio.get_running_loop()
            self._begun = self._loop.time()
            self._usage = usage
            self._transport.write(_HEAD + framed(TOKEN if self.chunks > 1 else LAST))
            self._next(1)

    def _next(self, number: int) -> None:
        at = self._begun + number * self.interval_s
        self._timer = self._loop.call_later(max(at - self._loop.time(), 0), self._tick, number)

    def _tick(self, number: int) -> None:
        if number < self.chunks:
            self._transport.write(framed(TOKEN if number + 1 < self.chunks else LAST))
            self._next(number + 1)
        else:
            self._transport.write((framed(USAGE) if self._usage else b"") + framed(_DONE) + b"0\r\n\r\n")


async def _main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Backend, "127.0.0.1", port, backlog=2048)
    print("ready", flush=True)
    await server.serve_forever()


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--chunks", type=int, default=50)
    parser.add_argument("--interval-ms", type=float, default=20)
    asked = parser.parse_args()
    Backend.chunks, Backend.interval_s = asked.chunks, asked.interval_ms / 1000
    try:
        uvloop.run(_main(asked.port))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
