"""Structured logs: one JSON object a line, never a prompt's text, never a key, never a raw target or header."""

import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TextIO

_QUEUE_MAX: Final = 10_000  # lines


class LogWriter:
    """Writes lines from a thread, since a full pipe must not stop the event loop; drops lines rather than waiting."""

    def __init__(self, stream: TextIO | None = None, dropped: Callable[[], None] = lambda: None) -> None:
        self._stream = stream or sys.stderr
        self._dropped = dropped
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()

    def info(self, event: str, **fields: Any) -> None:
        """Something that happened."""
        self._put("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that an operator may want to look at."""
        self._put("warning", event, fields)

    def close(self) -> None:
        """Write what is queued, then stop."""
        self._lines.put(None)
        self._thread.join(timeout=2)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if self._lines.qsize() >= _QUEUE_MAX:
            self._dropped()
            return
        line = {"ts": round(time.time(), 3), "level": level, "event": event}
        line.update((key, value) for key, value in fields.items() if value is not None)
        self._lines.put(json.dumps(line, separators=(",", ":"), default=str))

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line + "\n")
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self._dropped()
        self._stream.flush()
