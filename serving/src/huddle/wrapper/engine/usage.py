"""Find the token usage in answers, and errors in streams, without touching any other bytes.

Streams are looked at one write at a time: the engine writes whole events, so the common case is one search. Only an
event that holds the word `"usage"` or `"error"` (as a JSON key or value: inside a JSON string its quotes would be
escaped) is parsed. (docs/facts/vllm-and-ray.md#usage-of-streams)
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

_EVENT_END: Final = b"\n\n"
_ERROR: Final = b'"error"'
_WATCHED: Final = re.compile(rb'"(?:usage|error)"').search
_ERROR_KEY: Final = re.compile(rb'"error"\s*:(?!\s*null)')
_EVENT_MAX: Final = 1024 * 1024  # an event longer than this is passed on before it is whole, unless it holds an error
_TAIL_MAX: Final = 64 * 1024  # of a plain JSON answer; the usage stands near its end


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counted them."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total(self) -> int:
        """Prompt and completion tokens together: what limits count."""
        return self.prompt_tokens + self.completion_tokens


def usage_of(value: Any) -> Usage | None:
    """The usage in a decoded answer or event of any of the routes; None when there is none."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("response"), dict):  # an event of /v1/responses wraps the response
        value = value["response"]
    usage = value.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    completion = usage.get("completion_tokens", usage.get("output_tokens", 0))
    if not isinstance(prompt, int) or not isinstance(completion, int | None):
        return None
    return Usage(prompt, completion or 0)


class StreamMeter:
    """Watches a stream of server-sent events.

    `error` makes the event that stands for an error of the engine's; with `hide`, the usage event that only we asked
    for is taken out.
    """

    def __init__(self, *, hide: bool, error: Callable[[bytes], bytes]) -> None:
        self._hide = hide
        self._replaced = error
        self._partial = b""
        self._long: _Long | None = None
        self.usage: Usage | None = None

    @property
    def at_boundary(self) -> bool:
        """Whether what was passed on ends where an event does."""
        return self._long is not _Long.PASS

    def feed(self, data: bytes) -> bytes:
        """Note what `data` says and return what the client shall get now.

        The beginning of an unfinished event waits for its end: no reader could act on it before that.
        """
        if not self._partial and self._long is None and data.endswith(_EVENT_END):
            return data if _WATCHED(data) is None else self._look(data)
        data, self._partial = self._partial + data, b""
        begun = b""
        if self._long is not None:
            begun, end, data = data.partition(_EVENT_END)
            if self._long is _Long.DROP:
                begun, self._partial = b"", b"" if end else begun[-1:]  # it may be half of the end
            elif not end:
                begun, self._partial = begun[:-1], begun[-1:]
            else:
                begun += end
            if not end:
                return begun
            self._long = None
        whole, end, partial = data.rpartition(_EVENT_END)
        kept = begun + (self._look(whole + end) if end else b"")
        if len(partial) > _EVENT_MAX:
            broken = _ERROR_KEY.search(partial) is not None
            self._long = _Long.DROP if broken else _Long.PASS
            kept += self._replaced(partial) if broken else partial[:-1]
            partial = partial[-1:]
        self._partial = partial
        return kept

    def rest(self) -> bytes:
        """What is still held when the stream has ended: an event without its end is passed on as it came."""
        partial, self._partial = self._partial, b""
        if self._long is _Long.DROP:
            return b""
        return self._replaced(partial) if _ERROR in partial and _is_error(_decode(partial)) else partial

    def _look(self, events: bytes) -> bytes:
        """Note the usage in whole events; returns them without the one to hide, and with our errors."""
        if _WATCHED(events) is None:
            return events
        kept = []
        for event in events.split(_EVENT_END)[:-1]:
            if _WATCHED(event) is not None:
                decoded = _decode(event)
                if _ERROR in event and _is_error(decoded):
                    kept.append(self._replaced(event))
                    continue
                usage = usage_of(decoded)
                if usage is not None:
                    self.usage = usage
                    if self._hide and isinstance(decoded, dict) and decoded.get("choices") == []:
                        continue
            kept.append(event + _EVENT_END)
        return b"".join(kept)


class _Long(Enum):
    """What becomes of the rest of an event that is too long to be held."""

    PASS = auto()
    DROP = auto()


def _is_error(event: Any) -> bool:
    """Whether an event tells of an error: as vLLM does on any route, or what cannot be read and may."""
    if not isinstance(event, dict):
        return True
    response = event.get("response")
    return bool(
        event.get("error")
        or event.get("type") == "error"
        or event.get("object") == "error"
        or (isinstance(response, dict) and response.get("error"))
    )


class BodyMeter:
    """Watches a plain JSON answer, keeping no more than its end."""

    def __init__(self) -> None:
        self._tail = b""
        self._whole = True
        self.at_boundary = False

    def feed(self, data: bytes) -> bytes:
        """Note `data` and return it."""
        self._tail += data
        if len(self._tail) > _TAIL_MAX:
            self._tail = self._tail[-_TAIL_MAX:]
            self._whole = False
        return data

    def rest(self) -> bytes:
        """Nothing is ever held back."""
        return b""

    @property
    def usage(self) -> Usage | None:
        """The usage, once the body has ended."""
        if self._whole:
            try:
                return usage_of(json.loads(self._tail))
            except ValueError:
                return None
        for match in reversed(list(_USAGE_OBJECT.finditer(self._tail))):
            try:
                return usage_of({"usage": json.loads(match[1])})
            except ValueError:
                continue
        return None


_USAGE_OBJECT: Final = re.compile(rb'"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})')  # objects nested once, as vLLM's are


def _decode(event: bytes) -> Any:
    data = b"".join(line[5:] for line in event.split(b"\n") if line.startswith(b"data:"))
    try:
        return json.loads(data)
    except ValueError:
        return None
