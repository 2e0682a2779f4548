"""Secrets: marked for the engine, never written to the state file.

The file keeps a keyed digest in the place of every text that came from under a secret mark. On a read the text itself
comes back from what the engine sends along (its own, encrypted, copy); when that has another digest, the secret was
changed behind the engine's back. Pulumi's Python SDK spreads a nested secret over its whole top-level property, so what
Azure itself puts into such a property (ids, URIs) is marked for the engine but not a secret, and stays readable here.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from simulator.plugin.values import Secret, reveal, walk

MARK: Final = "$secret"
UNKNOWN_TEXT: Final = "(simulated: a secret the simulator did not keep)"
_SHORTEST: Final = 8  # shorter secrets are only recognised by their place, not wherever they occur
_SHORTEST_INSIDE: Final = 20  # texts inside a secret object: most of them are not secret themselves


def digest(salt: str, value: Any) -> str:
    """Keyed digest of a value; cannot be turned back without trying every value."""
    text = json.dumps(reveal(value), sort_keys=True, separators=(",", ":"))
    return hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()


def derived(salt: str, *parts: str, length: int = 32) -> str:
    """A made-up but stable value (subscription keys, GUIDs) for a place in this simulated subscription."""
    return hmac.new(salt.encode(), "\0".join(parts).encode(), hashlib.sha256).hexdigest()[:length]


def secret_texts(inputs: Any) -> list[str]:
    """Texts that are secrets themselves, long enough to be recognised elsewhere."""
    found = [leaf.value for _, leaf in walk(inputs) if isinstance(leaf, Secret) and isinstance(leaf.value, str)]
    return [text for text in found if len(text) >= _SHORTEST]


def private_texts(inputs: Any) -> list[str]:
    """`secret_texts`, and long texts inside secret objects: nothing of this belongs on a screen."""
    inner = [text for text in _leaves(inputs) if isinstance(text, str) and len(text) >= _SHORTEST_INSIDE]
    return [*secret_texts(inputs), *inner]


def _leaves(tree: Any) -> Iterator[Any]:
    """Plain values of all leaves under secret marks."""
    for _, leaf in walk(tree):
        if isinstance(leaf, Secret):
            yield from (value for _, value in walk(reveal(leaf.value)))


def mark(outputs: Any, inputs: Any, texts: Iterable[str]) -> Any:
    """Outputs with a secret mark wherever the same place in the inputs has one, or where a secret text occurs."""
    return _mark(outputs, inputs, tuple(texts))


def _mark(outputs: Any, inputs: Any, texts: tuple[str, ...]) -> Any:
    if isinstance(outputs, Secret):
        return outputs
    if isinstance(inputs, Secret):
        return Secret(reveal(outputs))
    if isinstance(outputs, Mapping):
        places = inputs if isinstance(inputs, Mapping) else {}
        return {key: _mark(item, places.get(key), texts) for key, item in outputs.items()}
    if isinstance(outputs, list):
        return [_mark(item, place, texts) for item, place in zip(outputs, _aligned(inputs, outputs), strict=True)]
    if isinstance(outputs, str) and any(text in outputs for text in texts):
        return Secret(outputs)
    return outputs


def redact(outputs: Any, inputs: Any, salt: str) -> Any:
    """What may be written down: digests in place of secrets."""
    return _redact(outputs, inputs, salt, tuple(secret_texts(inputs)), inside=False)


def _redact(outputs: Any, inputs: Any, salt: str, texts: tuple[str, ...], *, inside: bool) -> Any:
    if isinstance(inputs, Secret):
        whole = not isinstance(inputs.value, (Mapping, list))
        if whole:
            return {MARK: digest(salt, outputs)}
        return _redact(outputs, inputs.value, salt, texts, inside=True)
    if isinstance(outputs, Mapping):
        places = inputs if isinstance(inputs, Mapping) else {}
        return {key: _redact(item, places.get(key), salt, texts, inside=inside) for key, item in outputs.items()}
    if isinstance(outputs, list):
        pairs = zip(outputs, _aligned(inputs, outputs), strict=True)
        return [_redact(item, place, salt, texts, inside=inside) for item, place in pairs]
    if isinstance(outputs, str) and ((inside and outputs == inputs) or any(text in outputs for text in texts)):
        return {MARK: digest(salt, outputs)}
    return outputs


def _aligned(inputs: Any, outputs: list[Any]) -> list[Any]:
    return inputs if isinstance(inputs, list) and len(inputs) == len(outputs) else [None] * len(outputs)


def restore(stored: Any, salt: str, *engine: Any) -> Any:
    """The reverse of `redact`, with the secrets in what the engine sent; one it does not hold reads as a statement."""
    held = [value for tree in engine for value in _leaves(tree)]
    return _restore(stored, {digest(salt, value): value for value in held})


def _restore(stored: Any, held: Mapping[str, Any]) -> Any:
    if isinstance(stored, Mapping):
        if MARK in stored:
            return Secret(held.get(stored[MARK], UNKNOWN_TEXT))
        return {key: _restore(item, held) for key, item in stored.items()}
    if isinstance(stored, list):
        return [_restore(item, held) for item in stored]
    return stored


def scrub(text: str, texts: Iterable[str]) -> str:
    """Text for people: secrets cut out."""
    for secret in sorted(texts, key=len, reverse=True):
        text = text.replace(secret, "[secret]")
    return text
