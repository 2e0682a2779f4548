"""Secrets: marked for the engine, never written to the state file.

The file keeps a keyed digest in a secret's place. On a read the value itself comes back from what the engine sends
along (its own, encrypted, copy); when that has another digest, the secret was changed behind the engine's back.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from simulator.values import Secret, reveal, secrets_in

MARK: Final = "$secret"
_SHORTEST: Final = 6  # shorter texts are only recognised by their place, not wherever they occur


def digest(salt: str, value: Any) -> str:
    """Keyed digest of a value; cannot be turned back without trying every value."""
    text = json.dumps(reveal(value), sort_keys=True, separators=(",", ":"))
    return hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()


def derived(salt: str, *parts: str, length: int = 32) -> str:
    """A made-up but stable value (subscription keys, GUIDs) for a place in this simulated subscription."""
    return hmac.new(salt.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()[:length]


def secret_texts(inputs: Mapping[str, Any]) -> list[str]:
    """Every text under a secret mark that is long enough to be recognised elsewhere."""
    return [text for value in secrets_in(inputs) for text in _texts(value) if len(text) >= _SHORTEST]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def mark(outputs: Any, inputs: Any, texts: Iterable[str]) -> Any:
    """Outputs with a secret mark wherever the same place in the inputs has one, or where a secret text occurs."""
    found = tuple(texts)
    return _mark(outputs, inputs, found)


def _mark(outputs: Any, inputs: Any, texts: tuple[str, ...]) -> Any:
    if isinstance(outputs, Secret):
        return outputs
    if isinstance(inputs, Secret):
        return Secret(reveal(outputs))
    if isinstance(outputs, Mapping):
        places = inputs if isinstance(inputs, Mapping) else {}
        return {key: _mark(item, places.get(key), texts) for key, item in outputs.items()}
    if isinstance(outputs, list):
        items = inputs if isinstance(inputs, list) and len(inputs) == len(outputs) else [None] * len(outputs)
        return [_mark(item, place, texts) for item, place in zip(outputs, items, strict=True)]
    if isinstance(outputs, str) and any(text in outputs for text in texts):
        return Secret(outputs)
    return outputs


def redact(value: Any, salt: str) -> Any:
    """What may be written down: digests in place of secrets."""
    if isinstance(value, Secret):
        return {MARK: digest(salt, value)}
    if isinstance(value, Mapping):
        return {key: redact(item, salt) for key, item in value.items()}
    if isinstance(value, list):
        return [redact(item, salt) for item in value]
    return value


def restore(stored: Any, salt: str, known: Iterable[Any]) -> Any:
    """The reverse of `redact`, with the secrets the engine holds; one it does not hold reads as a plain statement."""
    by_digest = {digest(salt, value): value for value in known}
    return _restore(stored, by_digest)


def _restore(stored: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(stored, Mapping):
        if MARK in stored:
            return Secret(known.get(stored[MARK], "(simulated: a secret the simulator did not keep)"))
        return {key: _restore(item, known) for key, item in stored.items()}
    if isinstance(stored, list):
        return [_restore(item, known) for item in stored]
    return stored


def known_secrets(*trees: Mapping[str, Any]) -> list[Any]:
    """Every secret value in what the engine sent."""
    return [value for tree in trees for value in secrets_in(tree)]


def scrub(text: str, texts: Iterable[str]) -> str:
    """Text for people: secrets cut out."""
    for secret in sorted(texts, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text
