"""The gateway's front: HTTP/1.1 by h11; each chunk of an answer is written as it comes, a leaving client is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from urllib.parse import parse_qsl, unquote

import h11

from simulator.apim_policies.exchange import BackendFault
from simulator.apim_policies.gateway import Gateway
from simulator.apim_policies.messages import Headers, Request, Response

_READ = 65_536
_HIDDEN = "***"
Log = Callable[[str], None]


class _Connection:
    def __init__(self, gateway: Gateway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, log: Log) -> None:
        self._gateway = gateway
        self._reader = reader
        self._writer = writer
        self._log = log
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        while (request := await self._request()) is not None:
            serving = asyncio.ensure_future(self._answer(request))
            gone = asyncio.ensure_future(self._wait_for_more())
            try:
                await asyncio.wait({serving, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not serving.done() and gone.result():
                    return
                await serving
            finally:
                for task in (serving, gone):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
            if self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _wait_for_more(self) -> bool:
        """True when the client has gone. A client that sends more before its answer is heard out later."""
        data = await self._reader.read(_READ)
        self._http.receive_data(data)
        return not data

    async def _event(self) -> h11.Event | type[h11.PAUSED] | None:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(_READ))
        return event  # type: ignore[return-value]  # h11's sentinels are types of their own

    async def _request(self) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        body, announced = b"", any(name in {b"content-length", b"transfer-encoding"} for name, _ in head.headers)
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
        path, _, query = head.target.decode("latin-1").partition("?")
        return Request(
            method=head.method.decode(),
            path=unquote(path),
            query=parse_qsl(query, keep_blank_values=True),
            headers=Headers(
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()
            ),
            body=body if announced and body else None,
        )

    async def _answer(self, request: Request) -> None:
        line = self._log_line(request)
        response = await self._gateway.handle(request)
        try:
            async with aclosing(response.body) as chunks:  # type: ignore[type-var]  # generators, all of them
                self._head(response)
                async for chunk in chunks:
                    self._write(h11.Data(data=chunk))
                    await self._writer.drain()
                self._write(h11.EndOfMessage())
                await self._writer.drain()
        except BackendFault:
            self._writer.transport.abort()  # a cut that nobody can take for an end
            raise
        finally:
            if response.close is not None:
                await response.close()
            self._log(json.dumps({**line, "status": response.status}))

    def _head(self, response: Response) -> None:
        self._write(
            h11.Response(
                status_code=response.status,
                reason=response.reason.encode("latin-1"),
                headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers],
            )
        )

    def _write(self, event: h11.Event) -> None:
        if data := self._http.send(event):
            self._writer.write(data)

    def _log_line(self, request: Request) -> dict[str, str]:
        """A request as the diagnostics would log it: key parameters hidden, no headers, no body."""
        hidden = {api.key_query for api in self._gateway.config.apis}
        query = "&".join(f"{name}={_HIDDEN if name in hidden else value}" for name, value in request.query)
        return {"method": request.method, "url": f"{request.path}?{query}" if query else request.path}


@asynccontextmanager
async def serving(
    gateway: Gateway, *, host: str = "127.0.0.1", port: int = 0, log: Log = lambda _: None
) -> AsyncIterator[int]:
    """Serve a gateway; gives the port."""
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio starts a task for each connection
        running.add(task)
        try:
            await _Connection(gateway, reader, writer, log).run()
        except (ConnectionError, h11.ProtocolError, BackendFault, asyncio.CancelledError):
            pass  # the other side's doing, or the end of the server; there is nobody left to tell
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
