"""A proxy between the wrapper and a real engine that keeps what goes by."""

import asyncio

import httptools

from .fake_engine import FakeEngine


class Tap(FakeEngine):
    """Stands between the wrapper and the real engine, and keeps what goes by."""

    def __init__(self, real_port: int) -> None:
        super().__init__()
        self.real_port = real_port
        self.answers: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.real_port)

        async def answers() -> None:
            while data := await there.read(65536):
                parser.feed_data(data)
                writer.write(data)
                await writer.drain()
            writer.close()

        collected: list[bytes] = []

        class Body:
            def on_body(self, body: bytes) -> None:
                collected.append(body)

            def on_message_complete(_self) -> None:  # noqa: N805 - `self` is the tap
                self.answers.append(b"".join(collected))
                collected.clear()

        parser = httptools.HttpResponseParser(Body())
        copying = asyncio.create_task(answers())
        try:
            while (request := await self._read(reader)) is not None:
                self.requests.append(request)
                back.write(request.raw)
        except ConnectionError:
            pass
        finally:
            copying.cancel()
            back.close()
            writer.close()
