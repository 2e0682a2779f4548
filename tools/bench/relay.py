"""The least that a hop in Python costs: bytes go from one connection to the other, unread."""

import argparse
import asyncio
from typing import cast

import uvloop


class Engine(asyncio.Protocol):
    """The connection to the engine that belongs to one client."""

    def __init__(self, client: asyncio.WriteTransport) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._client.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The engine has closed."""
        self._client.abort()


class Client(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, engine_port: int) -> None:
        self._engine_port = engine_port
        self._engine: asyncio.WriteTransport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._connecting = asyncio.ensure_future(self._connect(cast(asyncio.WriteTransport, transport)))

    async def _connect(self, client: asyncio.WriteTransport) -> None:
        loop = asyncio.get_running_loop()
        self._engine, _ = await loop.create_connection(lambda: Engine(client), "127.0.0.1", self._engine_port)
        self._engine.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        if self._engine is not None:
            self._engine.write(data)
        else:
            self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """The client has left."""
        if self._engine is not None:
            self._engine.abort()


async def _main(port: int, engine_port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(engine_port), "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("engine_port", type=int)
    asked = parser.parse_args()
    uvloop.run(_main(asked.port, asked.engine_port))
