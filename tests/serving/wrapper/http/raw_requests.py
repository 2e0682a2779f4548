"""Requests as bytes, and two callers who send them."""

import json
from typing import Any

from huddle.wrapper.access.auth import new_key
from tests.serving.wrapper.conftest import Wrapper
from tests.serving.wrapper.fake_engine import MODEL

SMALL = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()


def head(key: str, length: int | None, *extra: str) -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"authorization: Bearer {key}", "content-type: application/json", framing, *extra]
    return ("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


def holders(**limits: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Keys of alice and bob, and the product that both use."""
    made = {name: new_key() for name in ("alice", "bob")}
    keys = [{"name": name, "sha256": digest} for name, (_, digest) in made.items()]
    return {name: key for name, (key, _) in made.items()}, {"team": {"keys": keys, **limits}}


async def status(wrapper: Wrapper, request: bytes) -> int:
    answer = await wrapper.raw(request.replace(b"\r\nhost: a", b"\r\nhost: a\r\nconnection: close", 1))
    return int(answer.split(b" ", 2)[1])
