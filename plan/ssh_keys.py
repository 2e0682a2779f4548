"""Public keys of OpenSSH: whether the text is a whole key of the kind that it names (RFC 4253, RFC 8709)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

RSA, ED25519 = "ssh-rsa", "ssh-ed25519"
RSA_LEAST_BITS = 2048
"""Azure takes RSA from this length on, and ed25519 (docs/facts/azure.md#ssh-keys)."""
_ED25519_BYTES = 32
_PARTS = {RSA: 3, ED25519: 2}  # the kind's name; then exponent and modulus, or the point


def problem(line: str) -> str | None:
    """What is wrong with a key's line `KIND BASE64 [COMMENT]`, as the end of a sentence; None when it is whole."""
    kind, blob = line.split(" ")[:2]
    if kind not in _PARTS:
        return f"is of kind {kind}, which Azure does not take; allowed: {ED25519}, or {RSA} of {RSA_LEAST_BITS} bits"
    cut = "is cut or damaged; copy the whole line of the .pub file"
    try:
        parts = _parts(base64.b64decode(blob, validate=True))
    except (binascii.Error, ValueError):
        return cut
    named = parts[0].decode(errors="replace") if parts else ""
    if named != kind and named.isprintable() and named.startswith(("ssh-", "ecdsa-", "sk-")):
        return f"says {kind}, but holds a key of kind {named}; copy the whole line of the .pub file"
    if named != kind or len(parts) != _PARTS[kind] or (kind == ED25519 and len(parts[1]) != _ED25519_BYTES):
        return cut
    bits = int.from_bytes(parts[2]).bit_length() if kind == RSA else 0
    if kind == RSA and bits < RSA_LEAST_BITS:
        return f"is an RSA key of {bits} bits; Azure takes {RSA_LEAST_BITS} or more"
    return None


def _parts(blob: bytes) -> Sequence[bytes]:
    """The strings of a blob, each behind its length in four bytes; ValueError where one is cut."""
    found: list[bytes] = []
    while blob:
        length = int.from_bytes(blob[:4])
        part = blob[4 : 4 + length]
        if len(blob) < 4 or len(part) < length:
            msg = "a part is cut"
            raise ValueError(msg)
        found.append(part)
        blob = blob[4 + length :]
    return found
