"""Two small requests through the gateway, with the first key of the stack's outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from huddle.errors import HuddleError
from huddle.headers import SUBSCRIPTION_KEY_HEADER
from infra.proof.evidence import Reply

_TIMEOUT_S = 120.0


class NoReplyError(HuddleError):
    """The gateway could not be asked, as a sentence."""


def twice(outputs: Mapping[str, Any]) -> tuple[Reply, ...]:
    """Ask the same small question two times.

    Raises:
        NoReplyError: the outputs hold no key, or the gateway did not answer.
    """
    keys, url, models = outputs.get("product_keys") or {}, outputs.get("openai_base_url"), outputs.get("models")
    if not (keys and url and models):
        raise NoReplyError("the stack's outputs hold no subscription's key; give a product `subscriptions`")
    headers = {SUBSCRIPTION_KEY_HEADER: str(next(iter(keys.values())))}
    body = {"model": models[0], "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8}
    try:
        with httpx2.Client(timeout=_TIMEOUT_S, headers=headers) as client:
            return tuple(_reply(client.post(f"{url}/chat/completions", json=body)) for _ in range(2))
    except httpx2.HTTPError as error:
        raise NoReplyError(f"the gateway did not answer ({type(error).__name__})") from None


def _reply(answer: httpx2.Response) -> Reply:
    try:
        usage = answer.json().get("usage") or {}
    except ValueError:
        usage = {}
    return Reply(
        answer.status_code,
        {name.lower(): value for name, value in answer.headers.items()},
        int(usage.get("total_tokens") or 0),
    )
