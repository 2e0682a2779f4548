"""The cold-start ledger: when each phase began, how long it took and how it ended, in a file that anybody may read.

Seconds count from the beginning of this application, which itself began `uptime_s` after the machine's boot.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import UNIQUE, StrEnum, verify
from threading import Lock
from typing import Any

from . import files
from .failure import ApplyError
from .paths import NodePaths

FORMAT = 1
LAST_WORDS_BYTES = 3 * 1024 - 2
"""Of log and sentence together; each ends with a line feed."""


@verify(UNIQUE)
class State(StrEnum):
    """What became of a bundle."""

    APPLYING = "applying"
    PREPARED = "prepared"
    SERVING = "serving"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"


class Ledger:
    """Writes status.json as phases end, and a line for each to the terminal."""

    def __init__(self, paths: NodePaths, node: str, wanted: str) -> None:
        self._path = paths.status
        self._lock = Lock()
        self._begin = time.monotonic()
        self._status: dict[str, Any] = {
            "format": FORMAT,
            "node": node,
            "state": State.APPLYING,
            "bundle": paths.serving_digest(),
            "wanted": wanted,
            "reason": None,
            "failed_phase": None,
            "warnings": [],
            "started": _now(),
            "uptime_s": round(time.clock_gettime(time.CLOCK_BOOTTIME), 1),
            "finished": None,
            "phases": [],
            "restarted": [],
        }
        self._write()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase. A failure gets the phase's name.

        Raises:
            ApplyError: the block's own, or an OSError of the block in words.
        """
        say(f"{name} ...")
        begin = time.monotonic()
        try:
            yield
        except (ApplyError, OSError) as failure:
            self._end(name, begin, "failed")
            with self._lock:
                self._status["failed_phase"] = self._status["failed_phase"] or name
            if isinstance(failure, OSError):  # a full disk, most of all
                raise ApplyError(f"{failure.strerror or failure}: {failure.filename or 'no file named'}") from failure
            raise
        self._end(name, begin, "done")

    def _end(self, name: str, begin: float, result: str) -> None:
        seconds, begin_s = round(time.monotonic() - begin, 1), round(begin - self._begin, 1)
        with self._lock:
            self._status["phases"].append({"name": name, "begin_s": begin_s, "seconds": seconds, "result": result})
        self._write()
        say(f"{name} {result} in {seconds} s")

    def warn(self, sentence: str) -> None:
        """Note what is not as it should be, but does not stop the node from serving."""
        say(f"warning: {sentence}")
        with self._lock:
            self._status["warnings"].append(sentence)

    def note(self, **values: Any) -> None:
        """Add facts, such as the number of GPUs."""
        with self._lock:
            self._status.update(values)

    def finish(self, state: State, serving: str | None, reason: str | None = None) -> dict[str, Any]:
        """Write the end and return the whole status."""
        self.note(state=state, bundle=serving, reason=reason, finished=_now())
        self._write()
        return dict(self._status)

    def end(
        self,
        state: State,
        serving: str | None,
        reason: str | None,
        code: int,
        *,
        phase: str | None = None,
        log: str = "",
    ) -> int:
        """Finish, and say how it ended, with the end of a log: a run command hands that on to `infra` and people."""
        if phase is not None:
            self.note(failed_phase=phase)
        status = self.finish(state, serving, reason)
        if code:
            sys.stderr.write(last_words(log, f"huddle-apply: {status['failed_phase']}: {status['reason']}"))
        elif log:
            sys.stderr.write(last_words(log, ""))
        sys.stdout.write(json.dumps(status) + "\n")
        return code

    def _write(self) -> None:
        with self._lock:
            try:
                files.write_json(self._path, self._status)
            except OSError as error:  # the application's own end matters more; its last line has all of this, too
                say(f"warning: {self._path} cannot be written ({error.strerror})")


def last_words(log: str, sentence: str) -> str:
    """The end of a log, then the sentence: at most 3 KiB, as a run command shows the last 4 of a stream."""
    said = sentence.encode()[:LAST_WORDS_BYTES].decode(errors="ignore")
    room = max(LAST_WORDS_BYTES - len(said.encode()), 0)
    tail = log.strip().encode()[-room:].decode(errors="ignore") if room else ""
    return "".join(f"{text}\n" for text in (tail, said) if text)


def say(text: str) -> None:
    """Print one line of progress to the terminal or journal."""
    sys.stdout.write(f"huddle-apply: {text}\n")
    sys.stdout.flush()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
