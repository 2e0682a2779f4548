"""Whatever an engine may answer, made of marks that become secrets when it is sent."""

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from huddle.wrapper.access.auth import Caller, Via, cache_salt, new_key
from tests.serving.wrapper.fake_engine import Received, Reply

ENGINE_KEY = "engine-key-0123456789abcdef"
KEY, DIGEST = new_key()
SALT_SECRET = b"salt secret of the tests"
SALT = cache_salt(SALT_SECRET, Caller(Via.OWN_KEY, "team", "alice"))
GATEWAY_SALT = cache_salt(SALT_SECRET, Caller(Via.GATEWAY, "team", "alice"))
PROMPTS = {
    "text": "Say nothing of the merger with Bolt & Söhne; the code of the vault is 4711.",
    "id": "internal-ticket:0123456789-abcdef.ghijkl",  # it could stand in an id
}

TOKEN = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "a", "logprob": -0.5, "bytes": [97]}]}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
MESSAGE = {"role": "assistant", "content": "hi", "reasoning": "hm", "refusal": None, "tool_calls": [CALL]}
CHOICE = {"index": 0, "logprobs": {"content": [TOKEN]}, "finish_reason": "stop", "stop_reason": "x", "token_ids": None}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny", "system_fingerprint": "vllm-1"}
USAGE = {"prompt_tokens": 3, "total_tokens": 4, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}}
PART = {"type": "output_text", "text": "hi", "annotations": [], "logprobs": [TOKEN]}
ITEM = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [PART]}
RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "tiny", "status": "completed",
    "instructions": "x", "metadata": {"a": "b"}, "tools": [{"type": "function", "name": "x"}], "tool_choice": "auto",
    "text": {"format": {"type": "text"}}, "user": "x", "reasoning": {"effort": "low"}, "output": [ITEM],
    "incomplete_details": {"reason": "max_output_tokens"}, "input_messages": [{"role": "system", "content": "x"}],
    "prompt": {"id": "x"}, "truncation": "disabled", "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
DETAILS = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "sequence_number": 1}
ANSWERS: list[Any] = [
    {**HEAD, "choices": [{**CHOICE, "message": MESSAGE}], "usage": USAGE, "prompt_text": "x", "prompt_token_ids": [1]},
    {**HEAD, "choices": [{**CHOICE, "delta": MESSAGE}]},
    {**HEAD, "choices": [{**CHOICE, "text": "hi", "logprobs": {"tokens": ["a"], "top_logprobs": [{"a": -0.5}]}}]},
    {**HEAD, "choices": [], "usage": USAGE},
    RESPONSE,
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE},
    {"type": "response.completed", "sequence_number": 9, "response": RESPONSE},
    {"type": "response.output_text.delta", "delta": "hi", "logprobs": [TOKEN], **DETAILS},
    {"type": "response.output_item.done", "item": ITEM, "sequence_number": 4},
    {"type": "response.content_part.done", "part": PART, **DETAILS},
    {**HEAD, "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -2e-3]}], "usage": USAGE},
    {"error": {"message": "x", "type": "x", "param": "x", "code": 400}},
    {"object": "error", "message": "x"},
    {"detail": [{"loc": ["body"], "msg": "x", "input": {"a": "b"}}]},
    ["x", {"x": "x"}],
    "x",
]

# An engine's answer is made of marks, which become secrets when it is sent.
MARK = st.sampled_from(["<prompt>", "<salt>", "<key>", "<address>"])
TEXT = st.builds(str.__add__, st.sampled_from(["", "", "chatcmpl-", "see http://", 'é"\\\n']), MARK)
EVERYWHERE = st.sets(st.integers(0, 40), max_size=4) | st.just(set(range(41)))


@st.composite
def answers(draw: st.DrawFn) -> Any:
    """An answer with a secret in some places: in values, and as keys."""
    places, text, count = draw(EVERYWHERE), draw(TEXT), 0
    keys = draw(st.booleans())

    def spoiled(value: Any) -> Any:
        nonlocal count
        if isinstance(value, dict):
            made = {key: spoiled(one) for key, one in value.items()}
            return made | ({text: text, "debug": {"a": [text]}} if keys else {})
        if isinstance(value, list):
            return [spoiled(one) for one in value]
        count += 1
        return text if count - 1 in places else value

    return spoiled(draw(st.sampled_from(ANSWERS)))


def written(answer: Any, twice: str | None) -> str:
    """JSON, with one key given twice on demand: a reader takes the last."""
    text = json.dumps(answer, ensure_ascii=twice is None)
    if twice is None or not isinstance(answer, dict):
        return text
    return '{"id": ' + json.dumps(twice) + ", " + text[1:]


EVENT = st.builds(
    lambda lines, answer, twice, end: "".join(lines) + f"data: {written(answer, twice)}{end}",
    st.lists(st.builds("{}: {}\n".format, st.sampled_from(["", "event", "id"]), MARK), max_size=2),
    answers(),
    st.none() | MARK,
    st.sampled_from(["\n\n", "\n\n", "\n\n", "\r\n\r\n", "\n\n: <prompt>\n\n", "\ndata: <salt>\n\n"]),
)  # fmt: skip
BODY = st.one_of(
    st.builds(written, answers(), st.none() | MARK),
    st.lists(EVENT, max_size=4).map("".join).map(lambda events: events + "data: [DONE]\n\n"),
    st.lists(EVENT, min_size=1, max_size=2).map("".join).map(lambda events: events[:-5]),
    MARK.map(lambda mark: f"<html><body>http://<address>/ {mark}</body></html>"),
    MARK,
)
STATUS = st.sampled_from(
    [200] * 8 + [0, 100, 204, 206, 301, 302, 304, 307, 400, 401, 404, 418, 422, 429, 500, 503, 999]
)
TYPE = st.sampled_from(
    ["application/json", "application/json", "text/event-stream", "text/event-stream", "text/html", "a/<key>"]
)
HEADERS = st.lists(
    st.sampled_from(
        [
            "location: http://<address>/<salt>",
            "retry-after: <salt>",
            "set-cookie: a=<key>",
            "content-encoding: gzip",
            "x-request-id: <salt>",
            "server: <prompt>",
            "x-huddle-prompt-id: <prompt>",
        ]
    ),
    max_size=2,
)


@dataclass(frozen=True)
class Said:
    """What an engine answers: its marks become secrets, and its body goes out in pieces."""

    status: int = 200
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    body: str = ""
    cuts: frozenset[float] = frozenset()
    whole: bool = True
    chunked: bool = True

    async def send(self, request: Received, reply: Reply, prompt: str, address: str) -> None:
        secrets = {"<prompt>": prompt, "<salt>": request.json["cache_salt"], "<key>": ENGINE_KEY, "<address>": address}
        body, head = self.body, "\r\n".join((f"content-type: {self.content_type}", *self.headers))
        for mark, secret in secrets.items():
            body, head = body.replace(mark, secret), head.replace(mark, secret)
        data = body.encode()
        framing = "transfer-encoding: chunked" if self.chunked else f"content-length: {len(data)}"
        await reply.raw(f"HTTP/1.1 {self.status:03} OK\r\n{head}\r\n{framing}\r\n\r\n".encode())
        if not self.chunked:
            await reply.raw(data)
            return
        edges = sorted({0, len(data), *(int(len(data) * cut) for cut in self.cuts)})
        for start, end in itertools.pairwise(edges):
            await reply.chunk(data[start:end])
            await asyncio.sleep(0.002)
        if self.whole:
            await reply.end()
        else:
            reply.writer.close()


SAID = st.builds(
    Said,
    STATUS,
    TYPE,
    HEADERS.map(tuple),
    BODY,
    st.frozensets(st.floats(0, 1), max_size=2),
    st.sampled_from([True, True, True, False]),
)
