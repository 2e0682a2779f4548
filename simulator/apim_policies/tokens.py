"""Tokens of prompts and answers, as a gateway knows them: by estimate before, by the answer's `usage` after. Pure.

API Management estimates prompts "from the prompt schema" and, in streams, answers too; its estimator is not public. The
lab's own: four bytes of text a token, and four tokens around each message (assumption).
(docs/facts/api-management.md#tokens-of-streams)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BYTES_PER_TOKEN = 4
_PER_MESSAGE = 4
_TEXT_FIELDS = ("messages", "prompt", "input", "instructions")
_EVENT_END = b"\n\n"


@dataclass(frozen=True)
class Tokens:
    """What a request used; `counted` says that the model's server reported it."""

    prompt: int
    completion: int
    counted: bool

    @property
    def total(self) -> int:
        """What limits count."""
        return self.prompt + self.completion


def estimate_text(text: str) -> int:
    """Tokens of a text."""
    return -(-len(text.encode()) // _BYTES_PER_TOKEN)


def estimate_prompt(body: bytes | None) -> int:
    """Tokens of a request's prompt; 0 for what is no JSON object."""
    request = _object(body or b"")
    messages = request.get("messages")
    framing = _PER_MESSAGE * len(messages) if isinstance(messages, list) else 0
    return framing + sum(estimate_text(text) for name in _TEXT_FIELDS for text in _texts(request.get(name)))


class AnswerMeter:
    """Watches an answer go by without holding any of it back. `by_usage`: what it reports counts, not the estimate."""

    def __init__(self, prompt_estimate: int, *, stream: bool, by_usage: bool = True) -> None:
        self._prompt = prompt_estimate
        self._stream = stream
        self._by_usage = by_usage
        self._held = b""
        self._text = ""
        self._reported: Tokens | None = None

    def feed(self, chunk: bytes) -> None:
        """Note a chunk."""
        self._held += chunk
        if not self._stream:
            return
        *events, self._held = self._held.split(_EVENT_END)
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    self._look(_object(line[5:]))

    def tokens(self) -> Tokens:
        """What was used, once the answer has ended."""
        if not self._stream:
            self._look(_object(self._held))
        return self._reported or Tokens(self._prompt, estimate_text(self._text), counted=False)

    def _look(self, value: dict[str, Any]) -> None:
        inner = value.get("response")
        usage = (inner if isinstance(inner, dict) else value).get("usage")
        if self._by_usage and isinstance(usage, dict):
            prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
            completion = usage.get("completion_tokens", usage.get("output_tokens", 0))
            if isinstance(prompt, int) and isinstance(completion, int):
                self._reported = Tokens(prompt, completion, counted=True)
        self._text += "".join(_answer_texts(value))


def _answer_texts(value: dict[str, Any]) -> Iterator[str]:
    for choice in value.get("choices") or ():
        part = choice.get("delta") or choice.get("message") or choice
        for name in ("content", "text"):
            if isinstance(part.get(name), str):
                yield part[name]
    if isinstance(value.get("delta"), str):  # an event of /v1/responses
        yield value["delta"]


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case {"content": content}:
            yield from _texts(content)
        case {"text": str(text)}:
            yield text
        case _:
            pass


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
