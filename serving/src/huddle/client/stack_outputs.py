"""Endpoint and key from a Pulumi stack's outputs. The key goes through a pipe, never through an argument or a text."""

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from huddle.client.connection import ClientError, Connection

TIMEOUT_S = 120.0  # a state backend across the ocean


def connection(stack: str, subscription: str | None, environ: Mapping[str, str]) -> Connection:
    """The gateway of a stack, with the key of a subscription (`product/name`); the only one when none is named.

    Raises:
        ClientError: when Pulumi or the outputs are not there, or when several subscriptions leave the choice open.
    """
    outputs = _read(stack, environ)
    source = f"stack {stack}"
    url, keys = outputs.get("openai_base_url"), outputs.get("product_keys")
    if not isinstance(url, str) or not isinstance(keys, dict):
        raise ClientError(
            f"{source} has no outputs openai_base_url and product_keys; bring it up with `make up STACK={stack}`"
        )
    models = outputs.get("models")
    model = str(models[0]) if isinstance(models, list) and models else None
    return Connection(url, source, str(keys[_choose(source, keys, subscription)]), model)


def _choose(source: str, keys: Mapping[str, Any], subscription: str | None) -> str:
    names = ", ".join(sorted(keys)) or "none"
    if subscription is None and len(keys) == 1:
        return next(iter(keys))
    if subscription in keys:
        return str(subscription)
    asked = f"no subscription {subscription!r}" if subscription else f"{len(keys)} subscriptions"
    raise ClientError(f"{source} has {asked}; choose one with --subscription: {names}")


def _read(stack: str, environ: Mapping[str, str]) -> dict[str, Any]:
    line = ["pulumi", "stack", "output", "--json", "--show-secrets", "--non-interactive", "--stack", stack]
    env = {"PULUMI_SKIP_UPDATE_CHECK": "true", **environ}
    try:
        answer = subprocess.run(
            line, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        raise ClientError(f"there is no pulumi on PATH to read the outputs of stack {stack} with") from None
    except subprocess.TimeoutExpired:
        raise ClientError(f"pulumi did not give the outputs of stack {stack} within {TIMEOUT_S:g} s") from None
    if answer.returncode:
        told = [line.strip() for line in answer.stderr.splitlines() if line.strip()]
        reason = next((line for line in told if line.startswith("error:")), told[-1] if told else "it said nothing")
        raise ClientError(f"pulumi cannot read the outputs of stack {stack}: {reason.removeprefix('error: ')}")
    try:
        outputs = json.loads(answer.stdout)
    except ValueError:
        outputs = None
    if not isinstance(outputs, dict):
        raise ClientError(f"pulumi's outputs of stack {stack} are not a JSON object")
    return outputs
