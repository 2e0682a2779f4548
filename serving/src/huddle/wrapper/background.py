"""Tasks that live as long as the process. One that ends is logged, counted and, after a short wait, started again."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

from huddle.wrapper.observability.logs import LogWriter
from huddle.wrapper.observability.metrics import Metrics, of

PAUSE_S: Final = 1.0


class Background:
    """Keeps tasks running until `close()`. They are not one exchange's: those end with it."""

    def __init__(self, log: LogWriter, metrics: Metrics, pause_s: float = PAUSE_S) -> None:
        self._log = log
        self._metrics = metrics
        self._pause_s = pause_s
        self._tasks: list[asyncio.Task[None]] = []
        self._down: list[str] = []

    @property
    def problem(self) -> str | None:
        """Which tasks are down at this moment, as a sentence for `/ready`."""
        return f"of the wrapper's own tasks, {', '.join(self._down)} has ended; it starts again" if self._down else None

    def keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` for ever."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._keep(name, work), name=name))

    def close(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()

    async def _keep(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            error: BaseException | None = None
            try:
                await work()
            except Exception as caught:
                error = caught
            except asyncio.CancelledError as caught:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                error = caught
            of(self._metrics.task_deaths, name).inc()
            self._log.warning("task_ended", task=name, error=type(error).__name__, at=place(error))
            self._down.append(name)
            await asyncio.sleep(self._pause_s)
            self._down.remove(name)


def place(error: BaseException | None) -> str | None:
    """Where an error was raised. Its text goes into no log: it could quote a request.

    One of the process beside (helper_process.py) says it itself.
    """
    if isinstance(at := getattr(error, "at", None), str):
        return at
    frames = traceback.extract_tb(error.__traceback__) if error is not None else None
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
