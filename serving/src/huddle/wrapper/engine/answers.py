"""What of an engine's answer goes on: the keys below, each with a value of its kind. Everything else is left out.

Only the model's own words pass unread, at the places where they belong. A word of the protocol is one of a list; an id
holds nothing that the client must not see; what `/v1/responses` repeats of a request is the client's own, as it came.
So an engine that repeats a prompt, a salt or an address anywhere else tells nobody.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from huddle.wrapper.body.prepare import REPEATED
from huddle.wrapper.routes import Route

SECRET_CHARACTERS: Final = 16
"""So many characters of a secret, and no fewer, make an id one that repeats it."""


class _Kind(Enum):
    WORDS_OF_THE_MODEL = auto()
    WORD = auto()
    ID = auto()
    STOP = auto()
    OWN = auto()
    TOKENS = auto()


_SAID: Final = _Kind.WORDS_OF_THE_MODEL
_WORD: Final = _Kind.WORD
_ID: Final = _Kind.ID
_NUMBER: Final = None  # numbers, true, false and null pass under every key that is known
_CLEARED_MAX: Final = 64  # the events of a stream repeat their ids
_ID_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/+-]{0,300}")
_ID_RUN: Final = re.compile(rf"[A-Za-z0-9._:/+-]{{{SECRET_CHARACTERS},}}")
_PROTOCOL: Final = """
chat.completion chat.completion.chunk text_completion list embedding response
assistant tool stop length tool_calls function_call content_filter abort error repetition
function message reasoning output_text reasoning_text summary_text refusal
auto none required default flex scale priority disabled
completed in_progress incomplete failed cancelled queued max_output_tokens
response.created response.in_progress response.completed response.incomplete response.failed
response.output_item.added response.output_item.done response.content_part.added response.content_part.done
response.output_text.delta response.output_text.done response.refusal.delta response.refusal.done
response.reasoning_text.delta response.reasoning_text.done response.reasoning_part.added
response.reasoning_part.done response.function_call_arguments.delta response.function_call_arguments.done
"""
_WORDS: Final = frozenset(_PROTOCOL.split())

_CACHED: Final = {
    "cached_tokens": _NUMBER,
    "created_cache_tokens": _NUMBER,
    "cache_write_tokens": _NUMBER,
    "input_tokens_per_turn": [_NUMBER],
    "cached_tokens_per_turn": [_NUMBER],
    "audio_tokens": _NUMBER,
}
_MADE: Final = {
    "reasoning_tokens": _NUMBER,
    "tool_output_tokens": _NUMBER,
    "output_tokens_per_turn": [_NUMBER],
    "tool_output_tokens_per_turn": [_NUMBER],
    "audio_tokens": _NUMBER,
    "accepted_prediction_tokens": _NUMBER,
    "rejected_prediction_tokens": _NUMBER,
}
_USAGE: Final = {
    "prompt_tokens": _NUMBER,
    "completion_tokens": _NUMBER,
    "total_tokens": _NUMBER,
    "input_tokens": _NUMBER,
    "output_tokens": _NUMBER,
    "prompt_tokens_details": _CACHED,
    "input_tokens_details": _CACHED,
    "completion_tokens_details": _MADE,
    "output_tokens_details": _MADE,
}
_TOKEN: Final = {"token": _SAID, "logprob": _NUMBER, "bytes": [_NUMBER]}
_TOKENS: Final = [{**_TOKEN, "top_logprobs": [_TOKEN]}]
_LOGPROBS: Final = {
    "content": _TOKENS,
    "refusal": _TOKENS,
    "tokens": [_SAID],
    "token_logprobs": [_NUMBER],
    "text_offset": [_NUMBER],
    "top_logprobs": [_Kind.TOKENS],
}
_FUNCTION: Final = {"name": _SAID, "arguments": _SAID}
_MESSAGE: Final = {
    "role": _WORD,
    "content": _SAID,
    "reasoning": _SAID,
    "reasoning_content": _SAID,
    "refusal": _SAID,
    "annotations": _NUMBER,
    "audio": _NUMBER,
    "function_call": _FUNCTION,
    "tool_calls": [{"index": _NUMBER, "id": _ID, "type": _WORD, "function": _FUNCTION}],
}
_CHOICE: Final = {
    "index": _NUMBER,
    "message": _MESSAGE,
    "delta": _MESSAGE,
    "text": _SAID,
    "logprobs": _LOGPROBS,
    "finish_reason": _WORD,
    "stop_reason": _Kind.STOP,
    "token_ids": _NUMBER,
    "routed_experts": _NUMBER,
    "prompt_logprobs": _NUMBER,
    "prompt_token_ids": _NUMBER,
}
_COMPLETION: Final = {
    "id": _ID,
    "object": _WORD,
    "created": _NUMBER,
    "model": _ID,
    "system_fingerprint": _ID,
    "service_tier": _WORD,
    "choices": [_CHOICE],
    "usage": _USAGE,
    "metrics": {
        "time_to_first_token_ms": _NUMBER,
        "generation_time_ms": _NUMBER,
        "queue_time_ms": _NUMBER,
        "mean_itl_ms": _NUMBER,
        "tokens_per_second": _NUMBER,
    },
    **dict.fromkeys(
        ("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params"), _NUMBER
    ),
}
_PART: Final = {"type": _WORD, "text": _SAID, "refusal": _SAID, "annotations": [_NUMBER], "logprobs": _TOKENS}
_ITEM: Final = {
    "id": _ID,
    "type": _WORD,
    "status": _WORD,
    "role": _WORD,
    "phase": _WORD,
    "content": [_PART],
    "summary": [_PART],
    "encrypted_content": _NUMBER,
    "call_id": _ID,
    "name": _SAID,
    "namespace": _SAID,
    "arguments": _SAID,
}
_SETTINGS: Final = """
created_at background error max_output_tokens max_tool_calls parallel_tool_calls previous_response_id prompt temperature
top_p top_logprobs presence_penalty frequency_penalty kv_transfer_params ec_transfer_params input_messages
output_messages
"""
_RESPONSE: Final = {
    "id": _ID,
    "object": _WORD,
    "model": _ID,
    "status": _WORD,
    "service_tier": _WORD,
    "truncation": _WORD,
    "incomplete_details": {"reason": _WORD},
    "output": [_ITEM],
    "usage": _USAGE,
    **dict.fromkeys(REPEATED, _Kind.OWN),
    **dict.fromkeys(_SETTINGS.split(), _NUMBER),
}
_EVENT: Final = {
    "type": _WORD,
    "response": _RESPONSE,
    "item": _ITEM,
    "part": _PART,
    "delta": _SAID,
    "text": _SAID,
    "refusal": _SAID,
    "arguments": _SAID,
    "name": _SAID,
    "logprobs": _TOKENS,
    "item_id": _ID,
    "sequence_number": _NUMBER,
    "output_index": _NUMBER,
    "content_index": _NUMBER,
    "summary_index": _NUMBER,
}
_EMBEDDINGS: Final = frozenset(
    {"id", "object", "created", "model", "data", "index", "embedding", "usage", *_USAGE, *_CACHED, *_MADE}
)


@dataclass(slots=True)  # one for each request: to freeze it would cost 1 µs
class Judge:
    """What may stand in the answer to one request.

    `secrets` are what no id may repeat, `request_id` is the client's own part of one. `own` is what the client has sent
    of what `/v1/responses` repeats, `stops` its stop texts.
    """

    route: Route
    request_id: str = ""
    secrets: tuple[str, ...] = ()
    own: Mapping[str, Any] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    _cleared: set[str] = field(default_factory=set)

    def plain(self, value: dict[str, Any]) -> bytes:
        """A whole answer as it goes on."""
        return encode(self._kept(value, _RESPONSE if self.route is Route.RESPONSES else _COMPLETION))

    def event(self, value: dict[str, Any]) -> bytes:
        """An event of a stream as it goes on, with its end."""
        if self.route is not Route.RESPONSES:
            return b"data: " + encode(self._kept(value, _COMPLETION)) + b"\n\n"
        kept = self._kept(value, _EVENT)
        kind = kept.get("type")
        name = f"event: {kind}\n".encode() if isinstance(kind, str) else b""
        return name + b"data: " + encode(kept) + b"\n\n"

    def knows(self, text: str) -> bool:
        """Whether a text may be a key or a value of an answer of `/v1/embeddings`."""
        return text in _EMBEDDINGS or text in _WORDS or self.may_be_id(text)

    def may_be_id(self, text: str) -> bool:
        """Whether a text may be an id or the name of a model."""
        return _ID_FORM.fullmatch(text) is not None and not self._repeats(text)

    def _kept(self, value: Any, kind: Any) -> Any:
        if isinstance(kind, dict):
            return self._object(value, kind) if isinstance(value, dict) else None
        if isinstance(value, str):
            return value if self._may_say(value, kind) else None
        if isinstance(value, list):
            if isinstance(kind, list):
                return [self._kept(one, kind[0]) for one in value]
            numbers = kind is _SAID and all(isinstance(one, int | float) for one in value)
            return value if numbers or not value else None
        if isinstance(value, dict):  # token texts as keys: `top_logprobs` of /v1/completions
            return {key: one for key, one in value.items() if _plain(one)} if kind is _Kind.TOKENS else None
        return value

    def _object(self, value: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
        made = {}
        for key, one in value.items():
            if key not in kinds:
                continue
            kind = kinds[key]
            if kind is None:
                made[key] = one if _plain(one) else None
            elif kind is _Kind.OWN and key in self.own:
                made[key] = self.own[key]
            else:
                made[key] = self._kept(one, kind)
        return made

    def _may_say(self, text: str, kind: Any) -> bool:
        if kind is _SAID:
            return True
        if kind in (_WORD, _Kind.OWN):
            return text in _WORDS
        if kind is _Kind.STOP:
            return text in self.stops
        return kind is _ID and self.may_be_id(text)

    def _repeats(self, text: str) -> bool:
        """Whether an id holds a piece of a secret. What the client itself has put in does not count: it could guess."""
        if text in self._cleared:
            return False
        own = text.replace(self.request_id, "\0") if self.request_id else text
        pieces = [own[i : i + SECRET_CHARACTERS] for i in range(len(own) - SECRET_CHARACTERS + 1)]
        for secret in self.secrets:
            if len(secret) < SECRET_CHARACTERS:
                if secret and secret in own:
                    return True
            elif pieces and any(map(_id_runs(secret).__contains__, pieces)):
                return True
        if len(self._cleared) < _CLEARED_MAX:
            self._cleared.add(text)
        return False


@lru_cache(maxsize=1_024)
def _id_runs(secret: str) -> str:
    """What an id could repeat of a secret: of a long prompt next to nothing is left, and it is looked at once."""
    return "\n".join(_ID_RUN.findall(secret))


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float)


def decode(text: bytes) -> Any:
    """JSON; None for what is none."""
    try:
        return json.loads(text.decode(errors="surrogatepass"))  # of bytes, it would look for their encoding first
    except (ValueError, RecursionError):
        return None


def encode(value: Any) -> bytes:
    """JSON as the engine writes it; numbers that JSON does not have are null."""
    try:
        return _ENCODER.encode(value).encode()
    except ValueError:  # half of a surrogate pair, or no number
        return json.dumps(_finite(value), separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, allow_nan=False)
