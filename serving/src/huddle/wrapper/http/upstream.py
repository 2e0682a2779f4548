"""Connections to the engine: a pool, and a response reader that checks the framing and passes the body on at once."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

import httptools

from huddle.headers import REQUEST_ID_HEADER
from huddle.wrapper.errors import RequestError, upstream_broken, upstream_timeout, upstream_unavailable

_HEAD_BYTES_MAX: Final = 64 * 1024
_RECEIVED_AT_ONCE: Final = 64 * 1024  # what an unread answer leaves with us; segments on loopback are as large
_HEADERS_MAX: Final = 100
_COPIED_BYTES_MAX: Final = 64 * 1024
# The engine mostly closes first (vLLM: VLLM_HTTP_TIMEOUT_KEEP_ALIVE, 5 s), and we see it; where it closes just as we
# send, the request is sent again on a new connection.
_IDLE_MAX_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the engine listens: a TCP host and port, or a Unix socket's path."""

    host: str = "127.0.0.1"
    port: int = 5005
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `http://host:port` or `unix:/path`. Raises `ValueError` with a sentence."""
        if text.startswith("unix:/"):
            return cls(path=text.removeprefix("unix:"))
        url = urlsplit(text)
        if url.scheme != "http" or not url.hostname or url.path not in ("", "/") or url.query or url.username:
            raise ValueError(f"{text!r} is not an engine address: use http://HOST:PORT or unix:/PATH")
        return cls(host=url.hostname, port=url.port or 80)

    @property
    def authority(self) -> str:
        """The `Host` header for it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return "localhost" if self.path else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http://{self.authority}"


@dataclass(slots=True)
class ResponseHead:
    """The parsed head of the engine's response; `length` None means chunked."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    length: int | None = None


class Sink(Protocol):
    """Who receives a response."""

    def response_head(self, head: ResponseHead) -> None:
        """The head is complete."""

    def response_body(self, data: bytes, *, last: bool) -> None:
        """Some of the body; `last` says that `response_end` follows at once."""

    def response_end(self) -> None:
        """The message is whole."""

    def response_lost(self, refusal: RequestError, *, stale: bool) -> None:
        """The connection broke. `stale`: it had been idle before and not one byte of an answer came."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to the engine; carries one request at a time."""

    def __init__(self, pool: "UpstreamPool") -> None:
        self.pool = pool
        self._transport: asyncio.Transport
        self._parser: httptools.HttpResponseParser  # made when there is something to parse
        self._sink: Sink | None = None
        self._chunks: list[bytes] = []
        self.on_body = self._chunks.append  # httptools calls it for every chunk; no frame of ours in between
        self._requests = 0
        self._reuse = True
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self._chunks.clear()
        self._body_chunks = 0
        self._head = ResponseHead()
        self._header_count = 0
        self._head_bytes = 0
        self._head_complete = False
        self._head_told = False
        self._complete = False
        self._keep_alive = False
        self._extra = False
        self._any_bytes = False
        self._fault: str | None = None

    @property
    def usable(self) -> bool:
        """Whether a request may be sent on it now."""
        return not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, sink: Sink, *, reuse: bool = True) -> None:
        """Send one request; its response goes to `sink`. After its end the connection is the pool's, or closed."""
        self._reuse = reuse
        self._requests += 1
        if self._transport.is_closing():  # lost between being made or taken and now
            refusal = upstream_broken("the engine closed the connection before its answer")
            asyncio.get_running_loop().call_soon(lambda: sink.response_lost(refusal, stale=True))
            return
        self._reset()
        self._parser = httptools.HttpResponseParser(self)
        self._sink = sink
        if len(body) < _COPIED_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))  # the body is in memory once

    def pause(self) -> None:
        """Stop reading until `resume`: the client is slower than the engine."""
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read from the engine again, after `pause`."""
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once; vLLM stops generating when its socket closes. Only for who has a request on it."""
        self._sink = None
        self._transport.abort()

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)
        if (own := transport.get_extra_info("socket")) is not None:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_AT_ONCE)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The engine closed, or we did."""
        self.pool.forget(self)
        with contextlib.suppress(AttributeError):
            del self._parser  # it refers to our methods: a cycle less for the collector
        sink, self._sink = self._sink, None
        if sink is not None:
            what = "in the middle of" if self._any_bytes else "before"
            sink.response_lost(
                upstream_broken(f"the engine closed the connection {what} its answer"),
                stale=not self._any_bytes and self._requests > 1,
            )

    def eof_received(self) -> bool:
        """A half-closed engine will not finish its answer."""
        return False

    def data_received(self, data: bytes) -> None:
        """Bytes of a response: the hot path is a stream in the middle, where only chunks of a body come."""
        sink = self._sink
        if sink is None:
            self._transport.abort()  # the engine speaks without being asked
            return
        self._any_bytes = True
        broken: str | None = None
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._extra = True
            broken = None if self._complete else f"the engine sent something that is not HTTP: {error}"
        chunks = self._chunks
        if self._head_told:
            if self._complete:
                del chunks[self._body_chunks :]  # what follows belongs to no request of ours
        elif not self._tell_head(sink, len(data)):
            broken = self._fault or broken
            chunks.clear()
        if chunks:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
            sink.response_body(body, last=self._complete)
        if broken is not None and self._sink is sink:
            self.abort()
            sink.response_lost(upstream_broken(broken), stale=False)
        elif self._complete and self._sink is sink:
            self._finish(sink)

    def _tell_head(self, sink: Sink, size: int) -> bool:
        """Tell the head once it is complete; False while there is no use for a body."""
        if not self._head_complete:
            self._head_bytes += size
            if self._head_bytes > _HEAD_BYTES_MAX:
                self._fault = f"the engine sent a response head over {_HEAD_BYTES_MAX} bytes"
        if self._fault is not None or not self._head_complete:
            return False
        if self._complete:
            del self._chunks[self._body_chunks :]
        self._head_told = True
        sink.response_head(self._head)
        return self._sink is sink  # not, when the sink has given up

    def _finish(self, sink: Sink) -> None:
        self._sink = None
        reusable = self._reuse and self._keep_alive and not self._extra and self._transport.get_write_buffer_size() == 0
        if reusable and not self._transport.is_closing():
            self._transport.resume_reading()
            self.pool.release(self)
        else:
            self._transport.abort()
        sink.response_end()

    # -- called by httptools --

    def on_message_begin(self) -> None:  # noqa: D102
        if self._complete:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102
        if self._complete or self._head_complete:
            return
        self._header_count += 1
        if self._header_count > _HEADERS_MAX:
            self._fault = f"the engine sent more than {_HEADERS_MAX} headers"
        self._head.headers[name.lower()] = value

    def on_headers_complete(self) -> None:  # noqa: D102
        if self._complete:
            return
        head = self._head
        head.status = self._parser.get_status_code()
        if 100 <= head.status < 200:
            return  # an interim answer; the real one follows
        self._keep_alive = self._parser.should_keep_alive()  # llhttp forgets it at the message's end
        length = head.headers.get(b"content-length")
        head.length = None if length is None else int(length)
        if length is None and head.headers.get(b"transfer-encoding", b"").lower() != b"chunked":
            if head.status in (204, 304):
                head.length = 0
            else:
                # Such a body ends when the connection does: a cut one would pass for whole.
                self._fault = "the engine sent a body without a length"
        self._head_complete = True

    def on_message_complete(self) -> None:  # noqa: D102
        if self._complete:
            return
        if self._head_complete:
            self._complete = True
            self._body_chunks = len(self._chunks)
        else:
            self._head = ResponseHead()  # forget the interim answer


def post_head(authority: str, target: str, request_id: str, key: str | None, length: int) -> bytes:
    """The head of a request with a JSON body of `length` bytes; `key` is the engine's, where it has one."""
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = (
        f"POST {target} HTTP/1.1\r\nhost: {authority}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n"
        f"{REQUEST_ID_HEADER}: {request_id}\r\n{authorization}\r\n"
    )
    return head.encode("latin-1")


class UpstreamPool:
    """Keep-alive connections to one engine, last used first."""

    def __init__(self, address: Address, connect_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.address = address
        self.authority = address.authority
        self._connect_s = connect_s
        self._clock = clock
        self._idle: list[UpstreamConnection] = []

    def take_idle(self) -> UpstreamConnection | None:
        """A connection that is ready now, or None."""
        oldest = self._clock() - _IDLE_MAX_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def connect(self) -> UpstreamConnection:
        """A fresh connection. Raises `RequestError` (503 or 504)."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_s):
                if self.address.path is not None:
                    _, connection = await loop.create_unix_connection(
                        lambda: UpstreamConnection(self), self.address.path
                    )
                else:
                    _, connection = await loop.create_connection(
                        lambda: UpstreamConnection(self), self.address.host, self.address.port
                    )
        except TimeoutError:
            raise upstream_timeout(f"the engine did not accept a connection within {self._connect_s:g} s") from None
        except OSError:
            raise upstream_unavailable("the engine is not reachable; it may be starting") from None
        return connection

    def release(self, connection: UpstreamConnection) -> None:
        """Take a connection back after a whole, clean response."""
        connection.idle_since = self._clock()
        self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """The connection is closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def prune(self) -> None:
        """Close what has been idle for too long; the longest idle come first."""
        oldest = self._clock() - _IDLE_MAX_S
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.pop(0).abort()

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().abort()
