"""`scan.py ADDRESS`: try to connect to every TCP port of a host; print those that answer, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys

_AT_ONCE = 500
_TIMEOUT_S = 5.0


async def _open(address: str, port: int, places: asyncio.Semaphore) -> int | None:
    async with places:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), _TIMEOUT_S)
        except (OSError, TimeoutError):
            return None
        writer.close()
        return port


async def _scan(address: str) -> list[int]:
    places = asyncio.Semaphore(_AT_ONCE)
    found = await asyncio.gather(*(_open(address, port, places) for port in range(1, 65_536)))
    return [port for port in found if port is not None]


print(json.dumps(asyncio.run(_scan(sys.argv[1]))))  # noqa: T201
