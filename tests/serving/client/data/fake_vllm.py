"""Stands in for `vllm serve` in the tests of `huddle local`: a polite engine, or one that dies as MANNERS says."""

import asyncio
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))
from tests.serving.wrapper.fake_engine import FakeEngine


async def serve(port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    await asyncio.start_server(FakeEngine().handle, "127.0.0.1", port)
    await stopped.wait()


if os.environ.get("MANNERS") == "crash":
    sys.exit("the engine cannot start: out of memory")
asyncio.run(serve(int(sys.argv[sys.argv.index("--port") + 1])))
