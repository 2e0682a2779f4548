"""Structured logs: one JSON object a line, never a prompt's text, never a key, never a raw target or header."""

import io
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

_LINES_MAX: Final = 10_000  # waiting to be written
_FLUSH_S: Final = 0.2


class Sink(Protocol):
    """Where bytes go, some at a time."""

    def write(self, data: memoryview, /) -> int | None:
        """Write some, say how many; None when there is no room now. Raises `OSError`."""


class LogWriter:
    """Writes lines from a thread, in batches: a full pipe must not stop the event loop, nor every line wake a thread.

    When the reader of the logs is too slow, or they cannot be written (a full disk, no stderr), lines are dropped (and
    counted) rather than waited for.
    """

    def __init__(self, sink: Sink | None = None, dropped: Callable[[], None] = lambda: None) -> None:
        self._sink = sink or _stderr()
        self._torn = False  # the last byte written ends no line
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
                try:
                    lines.append(_line(self._lines.popleft()))
                except (ValueError, TypeError, RecursionError):
                    self._dropped()
            if lines:
                self._send(lines)

    def _send(self, lines: Sequence[bytes]) -> None:
        """Write all, as far as possible. A line that is not whole counts as dropped, and the next begins a new one."""
        if self._torn:
            lines = [b"\n" + lines[0], *lines[1:]]
        data, sent = memoryview(b"".join(lines)), 0
        try:
            while sent < len(data) and (written := self._sink.write(data[sent:])):
                sent += written
        except (OSError, ValueError):
            pass
        ends = list(accumulate(map(len, lines)))
        for end in ends:
            if end > sent:
                self._dropped()
        self._torn = sent not in (0, *ends) or (self._torn and not sent)


def _line(fields: dict[str, Any]) -> bytes:
    return _ENCODER.encode({key: value for key, value in fields.items() if value is not None}).encode() + b"\n"


def _stderr() -> Sink:
    """Standard error without buffers, which would hide what was lost; where it was closed at the start, nothing."""
    return io.FileIO(sys.stderr.fileno(), "wb", closefd=False) if sys.stderr is not None else _Nowhere()


class _Nowhere:
    @staticmethod
    def write(_data: memoryview, /) -> int | None:
        return None


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), default=str)
