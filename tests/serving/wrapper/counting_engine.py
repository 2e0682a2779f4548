"""An engine for tests that counts for itself, as vLLM does: a prompt with its first token, each token as it is made."""

import re
from collections.abc import Sequence
from typing import Any

from .accounts import Asked, Kind
from .fake_engine import DONE, MODEL, Received, Reply, event

_TOKENS = re.compile(r"\w{1,6}|[^\w\s]").findall
_AROUND_A_MESSAGE = 4
_NUMBER = re.compile(rb"ask-(\d+)")
_TEXTS = (" the", " river", " runs", " through", " town", ".", " and", " stories", " begin", " there", ",")


class CountingEngine:
    """A script for the fake engine; it looks up each request in its schedule, to know when its client leaves."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = {each.number: each for each in asked}
        self.prompt = 0
        self.completion = 0

    async def count(self) -> int:
        """All that it made or read so far."""
        return self.prompt + self.completion

    async def __call__(self, request: Received, reply: Reply) -> None:
        found = _NUMBER.search(request.body)
        assert found is not None
        asked, fields = self._asked[int(found[1])], request.json
        chat = "messages" in fields
        if asked.kind is Kind.ENGINE_FAILS:
            await reply.json({"error": {"message": "out of order", "type": "InternalServerError", "code": 500}}, 500)
        elif fields.get("stream"):
            await self._stream(asked, fields, reply, chat=chat)
        else:
            usage = self._usage(self._prompt(fields), asked.most)
            self.completion += asked.most
            choice = {"message": {"role": "assistant", "content": "x"}} if chat else {"text": "x"}
            kind = "chat.completion" if chat else "text_completion"
            ended = {"index": 0, **choice, "finish_reason": "length"}
            await reply.json({"id": "x", "object": kind, "choices": [ended], "usage": usage})

    async def _stream(self, asked: Asked, fields: dict[str, Any], reply: Reply, *, chat: bool) -> None:
        prompt = self._prompt(fields)
        kind = "chat.completion.chunk" if chat else "text_completion"
        shared = {"id": "x", "object": kind, "created": 1_795_000_000, "model": MODEL}
        await reply.stream_head()
        if chat:
            begin = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            await reply.chunk(event(shared | {"choices": [begin]}))
        for number in range(asked.leaves_after or asked.most):
            self.completion += 1
            text = _TEXTS[(asked.number + number) % len(_TEXTS)]
            piece = {"delta": {"content": text}} if chat else {"text": text}
            last = number == asked.most - 1
            choice = {"index": 0, **piece, "finish_reason": "length" if last else None}
            await reply.chunk(event(shared | {"choices": [choice]}))
        if asked.leaves_after:
            self.completion += asked.unseen
            await reply.closed_by_peer()
            return
        if (fields.get("stream_options") or {}).get("include_usage"):
            await reply.chunk(event(shared | {"choices": [], "usage": self._usage(prompt, asked.most)}))
        await reply.chunk(DONE)
        await reply.end()

    def _prompt(self, fields: dict[str, Any]) -> int:
        messages = fields.get("messages") or [{"content": fields["prompt"]}]
        around = _AROUND_A_MESSAGE * len(messages) if "messages" in fields else 0
        tokens = around + sum(len(_TOKENS(message["content"])) for message in messages)
        self.prompt += tokens
        return tokens

    @staticmethod
    def _usage(prompt: int, completion: int) -> dict[str, int]:
        return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
