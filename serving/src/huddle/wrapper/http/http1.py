"""HTTP/1.1 requests, read by llhttp (httptools) and judged: what is ambiguous is refused, nothing is repaired.

llhttp in its strict mode already refuses conflicting or repeated lengths, folded headers, bare line feeds and bad
chunking. This module adds the limits that a parser does not have (sizes, counts) and the choices that it leaves open.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import httptools

from huddle.wrapper.errors import RequestError, malformed

# Given twice, these would let two readers of one message disagree about it.
_SINGLE: Final = frozenset(
    {b"host", b"content-type", b"content-encoding", b"transfer-encoding", b"authorization", b"expect", b"connection"}
)
_FRAMING_SLACK: Final = 64 * 1024  # bytes of chunk framing and trailers tolerated besides twice the body itself
_HEADER_SIGNS: Final = len(b": \r\n")
# Each piece of a body (of a chunk, as the network brings it) costs some 0.3 µs and, by itself, 35 bytes.
_JOINED_BYTES: Final = 64 * 1024  # smaller pieces are joined as they come, up to this size
_PIECES_SLACK: Final = 4_096
_PIECE_BYTES_MIN: Final = 256  # on average, beyond that many pieces


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Sizes of one request: bytes, and a count of headers."""

    max_head_bytes: int = 32 * 1024
    max_headers: int = 64
    max_target_bytes: int = 2 * 1024
    max_body_bytes: int = 8 * 1024 * 1024


@dataclass(slots=True)
class Head:
    """The parsed head of one request. Header names are lower-case; repeated names are in `repeated`."""

    method: str = ""
    path: str = ""
    http11: bool = True
    headers: dict[bytes, bytes] = field(default_factory=dict)
    repeated: set[bytes] = field(default_factory=set)
    keep_alive: bool = True
    has_body: bool = False

    def text(self, name: bytes) -> str | None:
        """One header as text, or None; a repeated one is a refusal, since nobody could say which was meant."""
        if name in self.repeated:
            raise malformed(f"header {name.decode('latin-1')} is given more than once")
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


class RequestReader:
    """Reads one request from the bytes of a connection. `feed` raises `RequestError`."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._parser: httptools.HttpRequestParser | None = None  # made when there is something to parse
        self._target = b""
        self._header_count = 0
        self._headers_bytes = 0
        self._raw_bytes = 0
        self._pieces = 0
        self._joined: list[bytes] = []
        self._joining = bytearray()
        self._refusal: RequestError | None = None
        self._extra = False
        self.head = Head()
        self.head_bytes = 0
        self.body_bytes = 0
        self.begun = False
        self.head_complete = False
        self.complete = False

    @property
    def extra(self) -> bool:
        """True when bytes of another message followed this one (pipelining)."""
        return self._extra

    def take_body(self) -> bytes:
        """The whole body of a complete request; it is handed over, not kept. Nothing can be fed after that."""
        pieces, self._joined = self._joined, []
        if self._joining:
            pieces.append(bytes(self._joining))
            self._joining = bytearray()
        self.close()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Let go of the parser, which refers to our methods: a cycle less for the collector."""
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Parse `data`; raises `RequestError` as soon as the request is known to be bad."""
        self.begun = True
        self._raw_bytes += len(data)
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise malformed("protocol upgrades and CONNECT are not offered; send plain HTTP/1.1") from None
        except httptools.HttpParserError as error:
            if self._refusal is None and not self.complete:
                raise malformed(f"not a valid HTTP/1.1 request: {error}") from None
            self._extra = self.complete
        if self._refusal is not None:
            raise self._refusal
        if not self.complete:
            self._bound_headers()
        if not self.head_complete:
            self.head_bytes = self._raw_bytes
            if self._raw_bytes > self._limits.max_head_bytes:
                raise self._head_too_large()
        elif self._raw_bytes > 2 * self._limits.max_body_bytes + self._limits.max_head_bytes + _FRAMING_SLACK:
            raise malformed("chunk framing outweighs the body", 413)

    # -- called by httptools; an exception here would be wrapped, so refusals are kept and raised by feed() --

    def on_message_begin(self) -> None:  # noqa: D102
        if self.complete:
            self._extra = True

    def on_url(self, url: bytes) -> None:  # noqa: D102
        if self.complete or self._refusal:
            return
        self._target += url
        if len(self._target) > self._limits.max_target_bytes:
            self._refusal = malformed(f"request target is over {self._limits.max_target_bytes} bytes", 414)

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: D102 - the most called of all
        self._header_count += 1
        self._headers_bytes += len(name) + len(value) + _HEADER_SIGNS
        if self.head_complete or self._header_count > self._limits.max_headers:
            return  # a trailer: counted, never used; or one of too many
        headers = self.head.headers
        name = name.lower()
        if name in headers:
            self.head.repeated.add(name)
        headers[name] = value

    def on_headers_complete(self) -> None:  # noqa: D102
        if self.complete or self._refusal:
            return
        head = self.head
        self.head_bytes = len(self._target) + self._headers_bytes
        assert self._parser is not None  # noqa: S101 - it calls us
        head.method = self._parser.get_method().decode("latin-1")
        head.keep_alive = self._parser.should_keep_alive()
        try:
            self._bound_headers()
            self._judge(head, self._parser.get_http_version())
        except RequestError as refusal:
            self._refusal = refusal
        self.head_complete = True

    def on_body(self, body: bytes) -> None:  # noqa: D102
        if self.complete or self._refusal:
            return
        self.body_bytes += len(body)
        if self.body_bytes > self._limits.max_body_bytes:
            self._refusal = too_large(self._limits.max_body_bytes)
            return
        self._pieces += 1
        if self._pieces > _PIECES_SLACK + self.body_bytes // _PIECE_BYTES_MIN:
            self._refusal = malformed("the request body comes in too many small pieces; send larger chunks", 413)
            return
        if not self._joining and len(body) >= _JOINED_BYTES:
            self._joined.append(body)
            return
        self._joining += body
        if len(self._joining) >= _JOINED_BYTES:
            self._joined.append(bytes(self._joining))
            self._joining.clear()

    def on_message_complete(self) -> None:  # noqa: D102
        if self.complete or self._refusal:
            return
        try:
            self._bound_headers()  # with its trailers
        except RequestError as refusal:
            self._refusal = refusal
        else:
            self.complete = True

    def _bound_headers(self) -> None:
        if self._header_count > self._limits.max_headers:
            raise malformed(f"more than {self._limits.max_headers} headers", 431)
        if self._headers_bytes > self._limits.max_head_bytes:
            raise self._head_too_large()

    def _head_too_large(self) -> RequestError:
        return malformed(f"request head is over {self._limits.max_head_bytes} bytes", 431)

    def _judge(self, head: Head, version: str) -> None:
        if version not in ("1.1", "1.0"):
            raise malformed(f"HTTP/{version} is not offered; use HTTP/1.1", 505)
        head.http11 = version == "1.1"
        if head.repeated:
            for name in head.repeated & _SINGLE:
                raise malformed(f"header {name.decode('latin-1')} is given more than once")
        if head.http11 and b"host" not in head.headers:
            raise malformed("header host is missing")
        if b"upgrade" in head.headers:
            raise malformed("protocol upgrades are not offered; send plain HTTP/1.1 without an Upgrade header")
        coding = head.headers.get(b"transfer-encoding")
        length = head.headers.get(b"content-length")
        if coding is not None:
            if coding.lower() != b"chunked":
                raise malformed("transfer-encoding may only be 'chunked'", 501)
            if not head.http11:
                raise malformed("transfer-encoding does not exist in HTTP/1.0")
        size = 0 if length is None else int(length)  # llhttp let only digits through
        if size > self._limits.max_body_bytes:
            raise too_large(self._limits.max_body_bytes)
        head.has_body = coding is not None or size > 0
        if b"content-encoding" in head.headers:
            raise malformed("compressed request bodies are not accepted", 415)
        if b"expect" in head.headers and head.headers[b"expect"].lower() != b"100-continue":
            raise malformed("header expect may only be '100-continue'", 417)
        if not self._target.startswith(b"/"):
            raise malformed("the request target must be a path that starts with '/'")
        head.path = self._target.partition(b"?")[0].decode("latin-1")


def too_large(limit: int) -> RequestError:
    """The refusal of a body over `limit` bytes."""
    return RequestError(413, "body_too_large", f"the request body is over {limit} bytes", close=True)


def status_line(status: int) -> bytes:
    """`HTTP/1.1 404 Not Found` with its line end; unknown codes get no phrase."""
    line = _STATUS_LINES.get(status)
    return line if line is not None else b"HTTP/1.1 %d \r\n" % status


_STATUS_LINES: Final[Mapping[int, bytes]] = {
    s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode("latin-1") for s in HTTPStatus
}
