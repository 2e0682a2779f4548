"""Answers on their way: what each says of the usage, and what of it goes on (answers.py).

A stream is judged event by event. Nearly all events of a stream begin with the same bytes and hold nothing but a piece
of text; those pass as they came, after one comparison and one match (0.7 µs). The others are parsed (20 µs).
(docs/facts/vllm-and-ray.md#usage-of-streams)
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from huddle.wrapper.engine.answers import Judge, decode
from huddle.wrapper.errors import upstream_broken
from huddle.wrapper.routes import Route

_EVENT_END: Final = b"\n\n"
_DONE: Final = b"[DONE]"
_DONE_EVENT: Final = b"data: [DONE]"
_CHOICES: Final = b'"choices":['
_JOINED_BYTES: Final = 4 * 1024
_EVENT_MAX: Final = 4 * 1024 * 1024  # a longer event is not held until its end: it becomes an error
# What all events of a stream share, where an engine writes it in this order; and what follows: one piece of text, or
# nothing, and nothing else.
_SHARED: Final = re.compile(
    rb'data: \{"id":"([^"\\]++)","object":"(?:chat\.completion\.chunk|text_completion)","created":\d{1,15},'
    rb'"model":"([^"\\]++)","choices":\['
).match
_PIECE_FORM: Final = (
    rb'\{"index":\d{1,4},"(?:delta":\{(?:"role":"assistant",)?(?:"(?:content|reasoning|reasoning_content)":)?|text":)'
    rb'(?:"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+")?\}?'
    rb'(?:,"(?:logprobs|finish_reason|stop_reason|token_ids)":null%b)*+\}\]\}\n\n'
)
_PIECE: Final = re.compile(_PIECE_FORM % rb'|,"finish_reason":"(?:stop|length)"').match
_UNENDED_PIECE: Final = re.compile(_PIECE_FORM % b"").match
PLAIN_MAX: Final = 16 * 1024 * 1024
"""The longest plain answer that is judged; it is held until it is whole."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the engine counts them."""

    prompt_tokens: int
    completion_tokens: int
    estimated: bool = False
    """The engine did not say it: see `unreported`."""

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
    completion = 0 if completion is None else completion
    if not isinstance(prompt, int) or not isinstance(completion, int) or min(prompt, completion) < 0:
        return None  # a count below zero would be a present to the caller
    return Usage(prompt, completion)


class StreamMeter:
    """Judges a stream of server-sent events.

    `error` makes the event that stands for an error of the engine's; with `hide`, the usage event that only we asked
    for is taken out. With `tell` as well, its usage goes on in the event that ends the last choice: whoever counts on
    the way sees it, and a client that did not ask meets no event without choices
    (docs/decisions/0021-tokens-that-add-up.md).
    """

    def __init__(self, judge: Judge, *, hide: bool, tell: bool = False, error: Callable[[bytes], bytes]) -> None:
        self._judge = judge
        self._hide = hide
        self._tell = hide and tell
        self._piece = _UNENDED_PIECE if self._tell else _PIECE
        self._replaced = error
        self._held: list[bytes] = []
        self.size = 0  # of what is held
        self._ending = b""  # the text of the event that ended a choice: the usage may be next
        self._dropping = False
        self._shared: bytes | None = None
        self.usage: Usage | None = None
        self.pieces = 0
        """Events with a piece of an answer so far: mostly a token each, and one that begins each choice of a chat."""

    def feed(self, data: bytes) -> bytes:
        """Note what `data` says and return what the client shall get now.

        The beginning of an unfinished event waits for its end: no reader could act on it before that.
        """
        held, made = self._held, b""
        if held and _EVENT_END not in held[-1][-1:] + data:
            _keep(held, data)
            self.size += len(data)
        else:
            if held:
                data = b"".join(held) + data
            pieces = 0 if self._dropping or self._ending else self._pieces(data)
            if not held and pieces == len(data):
                return data
            made = data[:pieces]
            whole, end, partial = data[pieces:].rpartition(_EVENT_END)
            if end:
                made += b"".join(map(self._look, whole.split(_EVENT_END)))
            held[:] = [partial] if partial else []
            self.size = len(partial) + len(self._ending)
        if self.size - len(self._ending) > _EVENT_MAX:
            if not self._dropping:
                made += self._ended() + self._replaced(b"".join(held))
            self._dropping = True
            held[:] = [held[-1][-1:]]  # it may be half of the end
            self.size = 1
        return made

    def rest(self) -> bytes:
        """What is still held when the stream has ended, judged as an event."""
        partial = b"".join(self._held)
        self._held.clear()
        self.size = 0
        return (self._look(partial) if partial else b"") + self._ended()

    def _pieces(self, data: bytes) -> int:
        """Bytes at the beginning that are events with pieces of text, behind what this stream's events share."""
        shared, at, count = self._shared, 0, 0
        if shared is None:
            shared = self._shared = self._usual_beginning(data)
        if shared is not None:
            while data.startswith(shared, at) and (found := self._piece(data, at + len(shared))):
                at = found.end()
                count += 1
            self.pieces += count
        return at

    def _usual_beginning(self, data: bytes) -> bytes | None:
        """What this stream's events share, if the first says it in the usual order and may say it."""
        judge = self._judge
        found = _SHARED(data) if judge.route is not Route.RESPONSES else None
        if found is None:
            return None
        answer, model = found.groups()
        return (
            found[0] if judge.may_be_id(answer.decode("latin-1")) and judge.may_be_id(model.decode("latin-1")) else None
        )

    def _look(self, event: bytes) -> bytes:
        """A whole event as it goes on, without the line that ends it coming in."""
        if self._dropping:
            self._dropping = False
            return b""
        if event == _DONE_EVENT:
            return self._ended() + event + _EVENT_END
        lines = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
        if not lines:
            return b""  # a comment, or what no client would read
        text = b"".join(lines)
        if text.strip() == _DONE:
            return self._ended() + _DONE_EVENT + _EVENT_END
        value = decode(text)
        if not isinstance(value, dict) or _is_error(value):
            return self._ended() + self._replaced(event)
        usage = usage_of(value)
        if usage is not None:
            self.usage = usage
            if self._hide and value.get("choices") == []:
                return self._ended(value)
        self.pieces += _is_piece(value)
        made = self._ended()
        if self._tell and _ends_a_choice(value):
            self._ending = text
            return made
        return made + self._judged(value)

    def _ended(self, usage_event: dict[str, Any] | None = None) -> bytes:
        """The held event that ended a choice; the usage event that follows it says the rest."""
        if not self._ending:
            return b""
        value, self._ending = decode(self._ending), b""
        return self._judged(value if usage_event is None else value | usage_event | {"choices": value["choices"]})

    def _judged(self, value: dict[str, Any]) -> bytes:
        made = self._judge.event(value)
        shared, found, _ = made.partition(_CHOICES)
        if found:
            self._shared = shared + found
        return made


def _is_piece(event: dict[str, Any]) -> bool:
    return bool(event.get("choices")) or isinstance(event.get("delta"), str)


def _ends_a_choice(event: dict[str, Any]) -> bool:
    choices = event.get("choices")
    return isinstance(choices, list) and any(isinstance(one, dict) and one.get("finish_reason") for one in choices)


def _is_error(event: dict[str, Any]) -> bool:
    """Whether an event tells of an error, as vLLM does on any route."""
    response = event.get("response")
    return bool(
        event.get("error")
        or event.get("type") == "error"
        or event.get("object") == "error"
        or (isinstance(response, dict) and response.get("error"))
    )


def _keep(held: list[bytes], data: bytes) -> None:
    """Join small pieces as they come: each costs 40 bytes of its own."""
    if held and len(held[-1]) < _JOINED_BYTES:
        held[-1] += data
    else:
        held.append(data)


class VectorsMeter:
    """Judges an answer of `/v1/embeddings`, which may be too long to be held: each of its strings, as they come."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._partial = b""
        self._before = b""
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of `data` is known to be right. Raises `RequestError` (502)."""
        data = self._partial + data
        at = 0
        for found in _STRING(data):
            self._outside(data[at : found.start()])
            at = found.end()
            vector = self._before.endswith(b'"embedding":') and _BASE64(found[1])
            if not vector and not self._judge.knows(found[1].decode("utf-8", "replace")):
                raise upstream_broken("the engine's answer holds what no answer of the route does")
            self._before = found[0][-_LONGEST:]
        begun = data.find(b'"', at)
        end = begun if begun >= 0 else len(data)
        self._outside(data[at:end])
        self._partial = data[end:]
        if len(self._partial) > _STRING_MAX:
            raise upstream_broken("the engine's answer holds a text that is too long")
        self._tail = (self._tail + data[:end])[-_TAIL_MAX:]
        return data[:end]

    def rest(self) -> bytes:
        """Nothing: half a string is no JSON. Raises `RequestError` (502)."""
        if self._partial:
            raise upstream_broken("the engine's answer is not JSON")
        return b""

    @property
    def size(self) -> int:
        """Bytes of a string that is not whole."""
        return len(self._partial)

    @property
    def usage(self) -> Usage | None:
        """The usage, once the body has ended."""
        found = _USAGE_OBJECT.findall(self._tail)
        return usage_of({"usage": decode(found[-1])}) if found else None

    def _outside(self, data: bytes) -> None:
        if _LONG_NUMBER in (self._before + data).translate(_AS_ZEROS):
            raise upstream_broken("the engine's answer holds a number that no reader takes")
        bare = data.strip()
        colon = bare.rfind(b":")  # only after a name: an address is no number
        if _NUMBERS(data) is None or colon > 0 or (colon == 0 and not self._before.endswith(b'"')):
            raise upstream_broken("the engine's answer is not JSON")
        self._before = (self._before + bare)[-_LONGEST:]


_STRING: Final = re.compile(rb'"([^"\\]*+)"').finditer
# true, false and null may come in pieces
_NUMBERS: Final = re.compile(rb"[-+0-9.E,:\[\]{}\snulltruefalse]*+").fullmatch
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/=]*+").fullmatch
_LONG_NUMBER: Final = b"0" * 64  # vectors have numbers of 20 digits at most; Python's json refuses 4,301
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"000000000")
_LONGEST: Final = len(_LONG_NUMBER)  # more than the name of a vector
_STRING_MAX: Final = 1024 * 1024  # a vector in base64 is the longest
_TAIL_MAX: Final = 4 * 1024  # the usage stands at the end
_USAGE_OBJECT: Final = re.compile(rb'"usage"\s*:\s*(\{(?:[^{}]|\{[^{}]*\})*\})')  # objects nested once, as vLLM's are


class BytesMeter:
    """Counts nothing: vectors as bytes (`encoding_format: bytes`) are the model's own, and say no usage."""

    usage: Usage | None = None
    size = 0

    def feed(self, data: bytes) -> bytes:
        """Return `data`."""
        return data

    def rest(self) -> bytes:
        """Nothing is ever held back."""
        return b""


class PlainMeter:
    """Holds a plain answer until it is whole, to be judged."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._held: list[bytes] = []
        self.size = 0
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """Keep `data`. Raises `RequestError` (502) for an answer of more than `PLAIN_MAX` bytes."""
        self.size += len(data)
        if self.size > PLAIN_MAX:
            raise upstream_broken(f"the engine's answer has more than {PLAIN_MAX} bytes; ask for a stream")
        _keep(self._held, data)
        return b""

    def rest(self) -> bytes:
        """Nothing: see `judged`."""
        return b""

    def whole(self) -> bytes:
        """The answer as it came; it is not kept."""
        whole = b"".join(self._held)
        self._held.clear()
        return whole

    def judged(self) -> bytes:
        """The answer as it goes on; notes its usage. Raises `RequestError` (502)."""
        self.usage, made = judge_plain(self.judge, self.whole())
        return made


def judge_plain(judge: Judge, answer: bytes) -> tuple[Usage | None, bytes]:
    """The usage that a whole plain answer says, and the answer as it goes on. Raises `RequestError` (502)."""
    value = decode(answer)
    if not isinstance(value, dict) or _is_error(value):
        raise upstream_broken("the engine's answer is not what the route answers")
    return usage_of(value), judge.plain(value)
