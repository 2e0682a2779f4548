"""The way to a backend: HTTP/1.1 by h11 on kept connections, the head as soon as it is there, the body as it comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote, urlsplit

import h11

from simulator.apim_policies.exchange import BackendFault
from simulator.apim_policies.messages import Headers, Request, Response

_CONNECT_S = 10.0
_READ = 65_536
_NOT_RELAYED = frozenset({"connection", "keep-alive", "transfer-encoding"})


class HttpSender:
    """Connections to backends. `addresses` says where the beginning of a plan's URL is reached in this lab."""

    def __init__(self, addresses: dict[str, str] | None = None) -> None:
        self._addresses = addresses or {}
        self._idle: dict[tuple[str, int], list[_Link]] = {}

    async def __call__(self, url: str, request: Request, timeout_s: float) -> Response:
        """Send a request. Raises `BackendFault`."""
        for known, address in self._addresses.items():
            if url.startswith(known):
                url = address + url.removeprefix(known)
        parts = urlsplit(url)
        place = (parts.hostname or "", parts.port or 80)
        query = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in request.query)
        target = f"{quote(parts.path)}?{query}" if query else quote(parts.path)
        try:
            async with asyncio.timeout(timeout_s):
                link, head = await self._exchange(place, parts.netloc, target, request)
        except TimeoutError:
            raise BackendFault("Timeout") from None
        except (OSError, h11.ProtocolError):
            raise BackendFault("BackendConnectionFailure") from None
        kept = Headers(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in head.headers.raw_items()
            if name.lower().decode("latin-1") not in _NOT_RELAYED
        )
        return Response(head.status_code, head.reason.decode("latin-1"), kept, self._body(place, link), link.close)

    async def close(self) -> None:
        """Close all idle connections."""
        for link in [link for links in self._idle.values() for link in links]:
            link.abort()
        self._idle.clear()

    async def _exchange(
        self, place: tuple[str, int], host: str, target: str, request: Request
    ) -> tuple[_Link, h11.Response]:
        while idle := self._idle.get(place):
            link = idle.pop()
            # A backend may have closed it meanwhile; nothing was begun then, so another connection is as good.
            with contextlib.suppress(OSError, h11.RemoteProtocolError):
                return link, await link.ask(host, target, request)
        async with asyncio.timeout(_CONNECT_S):
            link = _Link(*await asyncio.open_connection(*place))
        return link, await link.ask(host, target, request)

    async def _body(self, place: tuple[str, int], link: _Link) -> AsyncIterator[bytes]:
        """The body's bytes, undecoded. Closed early, the connection goes, by which a backend learns of it."""
        try:
            while isinstance(event := await link.event(), h11.Data):
                yield bytes(event.data)
        except (OSError, h11.ProtocolError):
            raise BackendFault("BackendConnectionFailure") from None
        if link.reusable():
            self._idle.setdefault(place, []).append(link)


class _Link:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT)
        self._busy = False

    async def ask(self, host: str, target: str, request: Request) -> h11.Response:
        """Send a request and wait for the head of its answer; without one, the connection is cut."""
        self._busy = True
        try:
            return await self._ask(host, target, request)
        except BaseException:
            self.abort()
            raise

    async def _ask(self, host: str, target: str, request: Request) -> h11.Response:
        headers = [("Host", host), *request.headers]
        if request.body is not None:
            headers.append(("Content-Length", str(len(request.body))))
        asked = h11.Request(method=request.method, target=target, headers=headers)
        data = [self._http.send(asked), self._http.send(h11.Data(data=request.body or b"")) if request.body else b""]
        self._writer.write(b"".join([*filter(None, data), self._http.send(h11.EndOfMessage()) or b""]))
        await self._writer.drain()
        while not isinstance(event := await self.event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise h11.RemoteProtocolError("no answer")
        return event

    async def event(self) -> object:
        """What comes next."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(_READ))
        return event

    def reusable(self) -> bool:
        """Whether another request may follow; prepares for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._busy = False
        return True

    async def close(self) -> None:
        """Cut the connection, unless it waits for its next request."""
        if self._busy:
            self._busy = False
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        self._writer.transport.abort()
