"""The way to a backend over HTTP/1.1, by httpx: the head as soon as it is there, the body as its bytes come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx

from simulator.policy_lab.exchange import BackendFault
from simulator.policy_lab.messages import Headers, Request, Response

_CONNECT_S = 10.0
_NOT_RELAYED = frozenset({"connection", "keep-alive", "transfer-encoding"})


class HttpSender:
    """A pool of connections to backends. `addresses` says where a URL of the plan is reached in this lab."""

    def __init__(self, addresses: dict[str, str] | None = None) -> None:
        self._addresses = addresses or {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        self._transport = httpx.AsyncHTTPTransport(limits=limits, retries=0)

    async def __call__(self, url: str, request: Request, timeout_s: float) -> Response:
        """Send a request. Raises `BackendFault`."""
        for known, address in self._addresses.items():
            if url.startswith(known):
                url = address + url.removeprefix(known)
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in request.query)
        headers = [("Host", httpx.URL(url).netloc.decode()), *request.headers]
        if request.body is not None:
            headers.append(("Content-Length", str(len(request.body))))
        timeouts = {"connect": _CONNECT_S, "read": timeout_s, "write": timeout_s, "pool": None}
        sent = httpx.Request(
            request.method,
            f"{url}?{query}" if query else url,
            headers=headers,
            stream=httpx.ByteStream(request.body or b""),
            extensions={"timeout": timeouts},
        )
        try:
            answer = await self._transport.handle_async_request(sent)
        except httpx.TimeoutException:
            raise BackendFault("Timeout") from None
        except httpx.TransportError:
            raise BackendFault("BackendConnectionFailure") from None
        # Only the wait for the head is limited: a stream may be silent for as long as the network lets it.
        timeouts["read"] = None
        kept = Headers(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in answer.headers.raw
            if name.lower().decode("latin-1") not in _NOT_RELAYED
        )
        reason = answer.extensions.get("reason_phrase", b"").decode("latin-1")
        stream = answer.stream
        assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - the asynchronous transport's
        return Response(answer.status_code, reason, kept, _pieces(stream), stream.aclose)

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


async def _pieces(stream: httpx.AsyncByteStream) -> AsyncIterator[bytes]:
    """The body's bytes, undecoded. Closing the stream early closes the connection, by which a backend learns of it."""
    try:
        async for piece in stream:
            yield piece
    except httpx.TransportError:
        raise BackendFault("BackendConnectionFailure") from None
