"""Find the token usage in answers without touching their bytes (docs/facts/vllm-and-ray.md#usage-of-streams).

Streams are looked at one write at a time: the engine writes whole events, so the common case is two substring
searches. Only an event that holds the word `"usage"` (as a JSON key: inside a JSON string its quotes would be escaped)
is parsed.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

_EVENT_END: Final = b"\n\n"
_KEY: Final = b'"usage"'
_EVENT_MAX: Final = 1024 * 1024  # an event longer than this is passed on without being looked at
_TAIL_MAX: Final = 64 * 1024  # of a plain JSON answer; the usage stands near its end


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counted them."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total(self) -> int:
        """What limits count."""
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
    """Watches a stream of server-sent events; with `hide`, takes out the usage event that only we asked for."""

    def __init__(self, *, hide: bool) -> None:
        self._hide = hide
        self._partial = b""
        self.usage: Usage | None = None
        self.events = 0
        self.at_boundary = True

    def feed(self, data: bytes) -> bytes:
        """Note what `data` says and return what the client shall get now.

        When hiding, the beginning of an unfinished event waits for its end (no reader could act on it before that);
        otherwise every byte is passed on at once.
        """
        if not self._partial and data.endswith(_EVENT_END) and _KEY not in data:
            self.events += data.count(_EVENT_END)
            return data
        whole, end, partial = (self._partial + data).rpartition(_EVENT_END)
        self._partial = partial
        kept = self._look(whole + end) if end else b""
        if len(self._partial) > _EVENT_MAX:
            kept, self._partial = kept + self._partial, b""
            self.at_boundary = False
            return kept if self._hide else data
        self.at_boundary = self._hide or not self._partial
        return kept if self._hide else data

    def rest(self) -> bytes:
        """What is still held when the stream has ended: an event without its end is passed on as it came."""
        partial, self._partial = self._partial, b""
        return partial if self._hide else b""

    def _look(self, events: bytes) -> bytes:
        """Note the usage in whole events; returns them without the one to hide."""
        self.events += events.count(_EVENT_END)
        if _KEY not in events:
            return events
        kept = []
        for event in events.split(_EVENT_END)[:-1]:
            decoded = _decode(event) if _KEY in event else None
            usage = usage_of(decoded)
            if usage is not None:
                self.usage = usage
                if self._hide and isinstance(decoded, dict) and decoded.get("choices") == []:
                    continue
            kept.append(event + _EVENT_END)
        return b"".join(kept)


class BodyMeter:
    """Watches a plain JSON answer, keeping no more than its end."""

    def __init__(self) -> None:
        self._tail = b""
        self._whole = True
        self.events = 0
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
