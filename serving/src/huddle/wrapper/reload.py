"""SIGHUP: configuration, prompts and keys are read again beside the event loop; a file that hangs stops no stream."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from huddle.wrapper.config import ConfigError, WrapperConfig
from huddle.wrapper.observability.notify import Notifier
from huddle.wrapper.runtime import Runtime
from huddle.wrapper.service import WrapperService

READ_S: Final = 10.0


class Reloads:
    """One reading at a time; what is asked for during one is done once after it."""

    def __init__(
        self, service: WrapperService, load: Callable[[], WrapperConfig], notifier: Notifier, read_s: float = READ_S
    ) -> None:
        self._service = service
        self._load = load
        self._notifier = notifier
        self._read_s = read_s
        self._asked = asyncio.Event()
        self._reader: threading.Thread | None = None

    def ask(self) -> None:
        """Reload soon."""
        self._asked.set()

    async def run(self) -> None:
        """Reload whenever it is asked for, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._notifier.reloading()
            try:
                self._service.reload(*await self._read())
            except ConfigError as error:
                self._service.metrics.reloads.labels("false").inc()
                self._service.log.warning("reload_refused", problems=error.sentences)
            else:
                self._service.metrics.reloads.labels("true").inc()
            finally:
                self._notifier.ready("serving")

    async def _read(self) -> tuple[Runtime, list[str]]:
        """Read everything in a thread. Raises `ConfigError`, also when it takes longer than `read_s`.

        A thread that hangs cannot be ended: until it has ended by itself, no other is begun.
        """
        if self._reader is not None and self._reader.is_alive():
            raise ConfigError("an earlier reload still waits for a file; restart the wrapper if that does not end")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[Runtime, list[str]]] = loop.create_future()

        def settle(settler: Callable[[Any], None], value: Any) -> None:
            if not outcome.done():
                settler(value)

        def read() -> None:
            try:
                made = self._service.prepare_reload(self._load())
            except Exception as error:  # whatever it is, it belongs to who waits
                loop.call_soon_threadsafe(settle, outcome.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, outcome.set_result, made)

        # A daemon: one that hangs must not keep the process from ending.
        self._reader = threading.Thread(target=read, name="reload", daemon=True)
        self._reader.start()
        done, _ = await asyncio.wait({outcome}, timeout=self._read_s)
        if not done:
            outcome.cancel()
            raise ConfigError(f"reading the configuration's files took more than {self._read_s:g} s; nothing changed")
        return outcome.result()
