"""The wrapper with a beat on its event loop: how much CPU time the process used between two beats, at most.

That is how long every stream stands still on an idle machine; unlike a clock it does not see what else a busy machine
does. Written as JSON to the second argument when SIGTERM comes.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import uvloop

from huddle.wrapper import config
from huddle.wrapper.server import Server

_BEAT_S = 0.001
_START_S = 2.0


async def _beat(gaps: list[float]) -> None:
    await asyncio.sleep(_START_S)
    last = time.process_time()
    while True:
        await asyncio.sleep(_BEAT_S)
        now = time.process_time()
        gaps[0] = max(gaps[0], now - last)
        last = now


async def _main(path: Path, report: Path) -> None:
    gaps = [0.0]
    beating = asyncio.create_task(_beat(gaps))
    await Server(lambda: config.load(path, {})).run()
    beating.cancel()
    written = report.with_suffix(".new")
    written.write_text(json.dumps({"stood_still_ms": gaps[0] * 1000}))
    written.rename(report)


if __name__ == "__main__":
    uvloop.run(_main(Path(sys.argv[1]), Path(sys.argv[2])))
