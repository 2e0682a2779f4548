"""Work on large bodies, in a process beside ours.

`json` reads and writes in C without ever letting another thread of its process in: on the cores of a GPU node a large
body in a thread let every stream stand still for 100 to 200 ms. The process starts with the first work, and goes when
there has been none for a while. Its end of input is its end, so it does not outlive us, whatever ends us.
"""

import asyncio
import contextlib
import os
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import huddle
from huddle.wrapper.background import place
from huddle.wrapper.errors import RequestError

Work = Callable[..., tuple[Any, bytes]]
"""A function of a module; it takes what it was asked with, and the bytes, and returns a result and bytes."""
_SIZES: Final = struct.Struct("!QQ")  # of what is pickled, and of the bytes behind it
_IDLE_S: Final = 300.0
_LONGEST_S: Final = 60.0  # a body takes less than one
_PACKAGES: Final = str(Path(huddle.__file__).parent.parent)
_BUFFER_BYTES: Final = 1024 * 1024


class HelperError(Exception):
    """The work failed by a fault of ours. `at` is where."""

    def __init__(self, at: str) -> None:
        super().__init__(at)
        self.at = at


class HelperProcess:
    """One per event loop and kind of work; does one piece after the other."""

    def __init__(self, idle_s: float = _IDLE_S, longest_s: float = _LONGEST_S) -> None:
        self._idle_s = idle_s
        self._longest_s = longest_s
        self._process: asyncio.subprocess.Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._busy = asyncio.Lock()
        self._closed = False

    @property
    def runs(self) -> bool:
        """Whether there is a process at this moment."""
        return self._process is not None and self._process.returncode is None

    async def run(self, work: Work, *arguments: Any, body: bytes) -> tuple[Any, bytes]:
        """Have `work(*arguments, body)` done. Raises `RequestError` as the work does, and `HelperError`.

        Work that has begun is done to its end, also when its caller leaves: another process would take longer to start.
        """
        await self._busy.acquire()
        doing = asyncio.get_running_loop().create_task(self._do(work, arguments, body))
        kind, result, made = await asyncio.shield(doing)
        if kind == "refused":
            raise RequestError(**result)
        if kind == "failed":
            raise HelperError(result)
        return result, made

    def close(self) -> None:
        """End the process for good."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _do(self, work: Work, arguments: tuple[Any, ...], body: bytes) -> tuple[str, Any, bytes]:
        """Never raises what is the client's: nobody may be left to see it, and then it would be printed."""
        try:
            if self._idle is not None:
                self._idle.cancel()
            was_there = self.runs
            try:
                return await self._ask(work, arguments, body)
            except EOFError:  # it has died; while it waited for work, perhaps
                if not was_there or self._closed:
                    raise
                return await self._ask(work, arguments, body)
        except Exception as error:
            return "failed", f"{type(error).__name__} {place(error)}", b""
        finally:
            if not self._closed:
                self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end)
            self._busy.release()

    async def _ask(self, work: Work, arguments: tuple[Any, ...], body: bytes) -> tuple[str, Any, bytes]:
        try:
            async with asyncio.timeout(self._longest_s):
                process = self._process if self._process is not None and self.runs else await self._start()
                assert process.stdin and process.stdout  # noqa: S101 - it was made so
                asked = pickle.dumps((work, arguments))
                with contextlib.suppress(OSError):  # there is no answer, then
                    process.stdin.writelines((_SIZES.pack(len(asked), len(body)), asked, body))
                    await process.stdin.drain()
                size, made = _SIZES.unpack(await process.stdout.readexactly(_SIZES.size))
                answer: tuple[str, Any] = pickle.loads(await process.stdout.readexactly(size))  # noqa: S301 - our own
                return *answer, await process.stdout.readexactly(made)
        except BaseException:  # what it says from now on would be taken for another answer
            self._end()
            raise

    async def _start(self) -> asyncio.subprocess.Process:
        if self._closed:
            raise EOFError
        # On a node the package is on our path only (cloud_init/templates/bin/huddle), not in the environment's.
        path = os.pathsep.join(filter(None, (_PACKAGES, os.environ.get("PYTHONPATH"))))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", __name__),
            env={**os.environ, "PYTHONPATH": path},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_BUFFER_BYTES,
            start_new_session=True,  # Ctrl-C is for us: what is under way is finished first
        )
        return self._process


def serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Do work until there is no more."""
    while head := asked.read(_SIZES.size):
        size, body = _SIZES.unpack(head)
        work, arguments = pickle.loads(asked.read(size))  # noqa: S301 - our own program's
        kind, result, made = _done(work, arguments, asked.read(body))
        answer = pickle.dumps((kind, result))
        answers.writelines((_SIZES.pack(len(answer), len(made)), answer, made))
        answers.flush()


def _done(work: Work, arguments: tuple[Any, ...], body: bytes) -> tuple[str, Any, bytes]:
    try:
        return "done", *work(*arguments, body)
    except RequestError as refusal:
        return "refused", vars(refusal), b""
    except Exception as error:  # its text could quote a request
        return "failed", f"{type(error).__name__} {place(error)}", b""


if __name__ == "__main__":
    # Whatever prints must not print into an answer.
    answering = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with os.fdopen(answering, "wb") as out, contextlib.suppress(BrokenPipeError):
        serve(sys.stdin.buffer, out)
