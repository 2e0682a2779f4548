"""One client's connection: reads requests one at a time, writes answers, watches for the client going away.

The state machine is READING → ANSWERING → READING …, with LINGERING before a close that must not cost the client its
answer: closing a socket that still holds unread bytes resets it, and a reset can overtake the answer on the wire.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol, cast

from huddle.wrapper.errors import RequestError, malformed
from huddle.wrapper.http.http1 import Head, HttpLimits, RequestReader, status_line
from huddle.wrapper.http.ledger import Holding, Ledger

_UNSOLICITED_MAX: Final = 64 * 1024  # bytes a client may send after its request before it is cut off
_LINGER_BYTES: Final = 1024 * 1024
_LINGER_S: Final = 2.0
_WRITE_BUFFER_BYTES: Final = 16 * 1024  # per slow reader, beyond the kernel's own buffer; more is in the ledger
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Seconds that a client may take."""

    idle_s: float = 75.0  # between requests
    head_s: float = 10.0  # from the first byte to the end of the head
    body_s: float = 60.0  # from the end of the head to the end of the body
    write_stall_s: float = 60.0  # without reading any of the answer while there is some to read


class Answer(Protocol):
    """What is producing the answer to a connection's current request."""

    def client_gone(self) -> None:
        """The client's connection is lost; stop the work."""

    def pause(self) -> None:
        """The client reads too slowly; stop producing."""

    def resume(self) -> None:
        """The client has caught up."""


class HttpService(Protocol):
    """What a connection asks of the server behind it."""

    @property
    def http_limits(self) -> HttpLimits:
        """The largest head and body of a request, in bytes."""

    @property
    def client_timeouts(self) -> ClientTimeouts:
        """How long a client may take."""

    @property
    def draining(self) -> bool:
        """True once connections shall close after their current answer."""

    @property
    def ledger(self) -> Ledger:
        """The accounts of the memory that requests hold."""

    def connected(self, connection: "ClientConnection", peer: object) -> bool:
        """Register, with the socket's peer name; False when there is no place for it."""

    def disconnected(self, connection: "ClientConnection") -> None:
        """A connection has closed."""

    def admit(self, connection: "ClientConnection", head: Head) -> object:
        """Judge the head before any body is read; returns what `answer` needs. Raises `RequestError`."""

    def abandoned(self, admitted: object) -> None:
        """An admitted request ends before `answer`."""

    def idle(self, connection: "ClientConnection") -> None:
        """The connection waits for its next request."""

    def answer(self, connection: "ClientConnection", admitted: object, body: bytes) -> Answer | None:
        """Start answering; None when the answer is already written."""

    def refused(self, head: Head | None, refusal: RequestError) -> list[tuple[str, str]]:
        """Note a refusal made before `answer`; returns headers for it."""


class State(Enum):
    """What the connection is doing."""

    READING = auto()
    ANSWERING = auto()
    LINGERING = auto()
    CLOSED = auto()


class ClientConnection(asyncio.Protocol):
    """The server side of one TCP connection."""

    def __init__(self, service: HttpService, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._transport: asyncio.Transport
        self._reader = RequestReader(service.http_limits)
        self._admitted: object = None
        self._answer: Answer | None = None
        self._unsolicited = 0
        self._since = clock()  # when the current phase of the current state began
        self._stalled_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._unsent_head = b""
        self._chunked = False
        self._length_told = False
        self._head_written = False
        self.holding = Holding(service.ledger)
        self.close_after = False
        self.bytes_out = 0
        self.state = State.READING

    # -- asyncio.Protocol --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)
        if not self._service.connected(self, transport.get_extra_info("peername")):
            self.state = State.CLOSED
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The client is gone, or we closed."""
        answer, self._answer = self._answer, None
        self.state = State.CLOSED
        self._reader.close()
        self._abandon()
        self.holding.release()
        self._service.disconnected(self)
        if answer is not None:
            answer.client_gone()

    def eof_received(self) -> bool:
        """The client has finished sending: as nginx does, this counts as leaving (a close looks just the same)."""
        return False

    def pause_writing(self) -> None:
        """The client's side of the connection is full."""
        self._stalled_since = self._clock()
        try:
            self.holding.hold(self._transport.get_write_buffer_size())
        except RequestError:  # its owner has too much that nobody reads
            self.abort()
            return
        if self._answer is not None:
            self._answer.pause()

    def resume_writing(self) -> None:
        """There is room again."""
        self._stalled_since = None
        self.holding.hold(0)
        if self._answer is not None:
            self._answer.resume()
        elif self.state is State.READING and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        if self.state is State.READING:
            try:
                self._read(data)
            except RequestError as refusal:
                head = self._reader.head if self._reader.head_complete else None
                self.refuse(refusal, self._service.refused(head, refusal), whole=self._reader.complete)
            return
        self._unsolicited += len(data)
        self.close_after = True
        allowed = _LINGER_BYTES if self.state is State.LINGERING else _UNSOLICITED_MAX
        if self._unsolicited > allowed:
            self.abort()

    # -- reading --

    def _read(self, data: bytes) -> None:
        reader = self._reader
        if not reader.begun:
            self._since = self._clock()
        reader.feed(data)
        self.holding.hold_head(reader.head_bytes)
        if not reader.head_complete:
            return
        if self._admitted is None:
            self._admitted = self._service.admit(self, reader.head)
            self._since = self._clock()
            if not reader.complete and b"expect" in reader.head.headers and reader.head.http11:
                self._transport.write(_CONTINUE)
        self.holding.hold(reader.body_bytes)
        if reader.complete:
            self.state = State.ANSWERING
            self._head_written = False
            self.bytes_out = 0
            self.close_after = reader.extra or not reader.head.keep_alive or self._service.draining
            admitted, self._admitted = self._admitted, None
            self._answer = self._service.answer(self, admitted, reader.take_body())
            if self.state is not State.ANSWERING:
                self._answer = None

    def _abandon(self) -> None:
        if self._admitted is not None:
            admitted, self._admitted = self._admitted, None
            self._service.abandoned(admitted)

    # -- writing --

    @property
    def head_written(self) -> bool:
        """True once the status of the current answer is on its way; it can then no longer change."""
        return self._head_written

    @property
    def stalled(self) -> bool:
        """True while the client does not read what is written for it."""
        return self._stalled_since is not None

    def start_response(self, status: int, headers: list[tuple[str, str]], length: int | None) -> None:
        """Write the head. `length` None means that the length is not known: chunked, or until close in HTTP/1.0."""
        self._chunked = length is None and self._reader.head.http11
        self._length_told = length is not None
        if length is None and not self._chunked:
            self.close_after = True
        framing = "transfer-encoding: chunked\r\n" if self._chunked else ""
        if length is not None:
            framing = f"content-length: {length}\r\n"
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
        after = "close" if self.close_after else "keep-alive"
        head = f"{lines}date: {_http_date(int(time.time()))}\r\n{framing}connection: {after}\r\n\r\n"
        self._head_written = True
        self._unsent_head = status_line(status) + head.encode("latin-1")
        self._loop.call_soon(self._send_head)

    def write_body(self, data: bytes, *, last: bool = False) -> None:
        """Write some of the body, at once. `last`: `end_response` follows, so the end may go along."""
        self.bytes_out += len(data)
        if self._chunked:
            if last:
                self._chunked = False
                data = b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data)
            else:
                data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._unsent_head:
            data, self._unsent_head = self._unsent_head + data, b""
        self._transport.write(data)

    def _send_head(self) -> None:
        """Send the head, unless the first of the body, read together with it, took it along."""
        if self._unsent_head and self.state is not State.CLOSED:
            head, self._unsent_head = self._unsent_head, b""
            self._transport.write(head)

    def end_response(self) -> None:
        """The answer is whole; get ready for the next request, or close."""
        if self.state is not State.ANSWERING:
            return
        self._send_head()
        if self._chunked:
            self._transport.write(b"0\r\n\r\n")
        self._finish()

    def respond(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        """Write a whole answer."""
        if self.state is State.CLOSED:
            return
        self.start_response(status, headers, len(body))
        if self._reader.head.method != "HEAD":
            self.write_body(body)
        self._send_head()
        self._finish()

    def refuse(self, refusal: RequestError, headers: list[tuple[str, str]], *, whole: bool = True) -> None:
        """Answer with an error. `whole` says that the request was read to its end."""
        if self.state in (State.CLOSED, State.LINGERING):
            return
        self.state = State.ANSWERING
        self._abandon()
        self.holding.hold(0)
        reader = self._reader
        done = refusal.close or not whole or reader.extra or not reader.head.keep_alive or self._service.draining
        self.close_after = self.close_after or done
        headers = [("content-type", "application/json"), *headers]
        if refusal.retry_after_s is not None:
            headers.append(("retry-after", str(refusal.retry_after_s)))
        if refusal.allow is not None:
            headers.append(("allow", refusal.allow))
        if refusal.status == 401:
            headers.append(("www-authenticate", "Bearer"))
        self.respond(refusal.status, headers, refusal.body())

    def abort(self) -> None:
        """Cut the connection at once."""
        self._since = self._clock()
        self.state = State.CLOSED
        self._transport.abort()

    def cut(self) -> None:
        """Send what is written and close without the answer's proper end, so that the client sees that it is cut."""
        if self.state is State.ANSWERING and (self._chunked or self._length_told):
            self._send_head()
            self._answer = None
            self._since = self._clock()
            self.state = State.CLOSED
            self._transport.close()
        else:
            self.abort()

    def close_if_idle(self) -> None:
        """Close between requests; otherwise let the current answer be the last."""
        self.close_after = True
        if self.state is State.READING and not self._reader.begun:
            self._transport.close()

    def check(self, now: float) -> None:
        """Enforce the timeouts; called a few times a second for every connection."""
        limits = self._service.client_timeouts
        waited = now - self._since
        if self._stalled_since is not None and now - self._stalled_since > limits.write_stall_s:
            self.abort()
        elif self.state is State.READING:
            if not self._reader.begun:
                if waited > limits.idle_s:
                    self._transport.close()
            elif waited > (limits.body_s if self._reader.head_complete else limits.head_s):
                part = "body" if self._reader.head_complete else "head"
                refusal = malformed(f"the request {part} took too long to arrive", 408)
                head = self._reader.head if self._reader.head_complete else None
                self.refuse(refusal, self._service.refused(head, refusal), whole=False)
        elif self.state is State.LINGERING and waited > _LINGER_S:
            self.abort()
        elif self.state is State.CLOSED and waited > limits.write_stall_s:
            self._transport.abort()

    def _finish(self) -> None:
        self._answer = None
        self.holding.hold_head(0)
        self._since = self._clock()
        self._chunked = False
        self._reader.close()
        if not self.close_after:
            self.state = State.READING
            self._reader = RequestReader(self._service.http_limits)
            self._unsolicited = 0
            self._service.idle(self)
            if self._stalled_since is not None and not self._transport.is_closing():
                self._transport.pause_reading()  # who does not read gets no further answer
            return
        if self._reader.complete and not self._unsolicited and not self._reader.extra:
            self.state = State.CLOSED
            self._transport.close()  # flushes first
            return
        self.state = State.LINGERING
        if self._transport.can_write_eof():
            self._transport.write_eof()


def _http_date(second: int) -> str:
    """The date header. At a request or two a second each needs a new one, and `email`'s formatter is slow when cold."""
    if second != _date_cache[0]:
        now = time.gmtime(second)
        _date_cache[:] = [
            second,
            f"{_DAYS[now.tm_wday]}, {now.tm_mday:02} {_MONTHS[now.tm_mon - 1]} {now.tm_year} "
            f"{now.tm_hour:02}:{now.tm_min:02}:{now.tm_sec:02} GMT",
        ]
    return str(_date_cache[1])


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_date_cache: list[int | str] = [0, ""]
