"""Structured logs: one JSON object a line, never a prompt's text, never a key, never a raw target or header."""

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TextIO

_LINES_MAX: Final = 10_000  # waiting to be written
_FLUSH_S: Final = 0.2


class LogWriter:
    """Writes lines from a thread, in batches: a full pipe must not stop the event loop, nor every line wake a thread.

    When the reader of the logs is too slow, lines are dropped (and counted) rather than waited for.
    """

    def __init__(self, stream: TextIO | None = None, dropped: Callable[[], None] = lambda: None) -> None:
        self._stream = stream or sys.stderr
        self._dropped = dropped
        self._lines: deque[dict[str, Any]] = deque()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()

    def info(self, event: str, **fields: Any) -> None:
        """Log an event at level `info`; the fields must hold no secret and no prompt."""
        self._put("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that an operator may want to look at."""
        self._put("warning", event, fields)

    def close(self) -> None:
        """Write what is waiting, then stop."""
        self._closing.set()
        self._thread.join(timeout=2)

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if len(self._lines) >= _LINES_MAX:
            self._dropped()
            return
        self._lines.append({"ts": round(time.time(), 3), "level": level, "event": event, **fields})

    def _write(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.wait(_FLUSH_S)
            lines = []
            while self._lines:
                fields = self._lines.popleft()
                lines.append(_ENCODER.encode({key: value for key, value in fields.items() if value is not None}))
            if not lines:
                continue
            try:
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                for _ in lines:
                    self._dropped()


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=str)
