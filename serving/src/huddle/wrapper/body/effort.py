"""How long the JSON of a body would hold the interpreter, estimated from counts: nobody else's stream may wait for it.

The costs are the larger of parsing and writing, measured with Python 3.11 on two shared cores; GPU nodes are faster.
"""

from typing import Final

INLINE_NS: Final = 4_000_000
"""Up to this, a body is prepared on the event loop; else beside it (helper_process.py)."""
MOST_NS: Final = 42_000_000
"""Above this, a body is refused: 550,000 token ids, 180,000 texts, 84,000 keys or decimals, 20,000 objects or lists.

That is for the others whose large bodies wait for this one. A batch of embeddings, 1,000 texts of 500 token ids, is
41 ms by the estimate.
"""

_SMALL_BYTES: Final = 4_096  # cannot hold enough of anything
_VALUE_NS: Final = 75  # a whole number or a word
_QUOTE_NS: Final = 75  # a text has two
_DECIMAL_NS: Final = 400  # by its point or its exponent; `true` and `false` are taken for one
_KEY_NS: Final = 400
_CONTAINER_NS: Final = 2_000  # with what is judged of an object later
_GRAMMARS: Final = (b'"grammar"', rb"\u005", rb"\u006", rb"\u007")
"""Or letters in escapes, which may be that word or one of the next."""
_GRAMMAR_BYTES: Final = 1024  # judging one takes up to the square of its length: 7 KB 50 ms
_EXPRESSIONS: Final = (b"pattern", b"regex")
_EXPRESSION_BYTES: Final = 8 * 1024  # judging one takes 1.3 µs a character
_BYTES_PER_NS: Final = 2  # in texts; 8 MB take 4 ms to decode
_ENDLESS: Final = 65  # digits
_FEW_NUMBERS_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(ord("0") if chr(i).isdigit() and i < 128 else i for i in range(256))


def effort_ns(body: bytes) -> int:
    """Nanoseconds for a whole body; what stands inside of texts counts as text only."""
    if len(body) <= _SMALL_BYTES:
        return len(body) * _VALUE_NS
    most = _count(body) + body.count(b'"') * _QUOTE_NS
    if most <= INLINE_NS:
        return most
    body = _without_escapes(body)
    quotes = body.count(b'"') * _QUOTE_NS
    if quotes > MOST_NS:
        return quotes  # taking it apart would take as long
    return quotes + _count(_outside_texts(body)) + len(body) // _BYTES_PER_NS


def prepared_at_once(body: bytes) -> bool:
    """Whether a body takes so little that the event loop does it, whatever its texts hold."""
    if len(body) > _GRAMMAR_BYTES and any(word in body for word in _GRAMMARS):
        return False
    if len(body) > _EXPRESSION_BYTES and any(word in body for word in _EXPRESSIONS):
        return False
    return effort_ns(body) <= INLINE_NS and most_ns_in_texts(body) <= INLINE_NS


def most_ns_in_texts(body: bytes) -> int:
    """Nanoseconds at most, if the texts of a body hold JSON, too, which the judge of schemas reads. Prose is cheap."""
    return (
        body.count(b",") * _DECIMAL_NS
        + (body.count(b":") + body.count(rb"\u00")) * _KEY_NS
        + sum(map(body.count, (b"{", b"[", rb"\u005", rb"\u007"))) * _CONTAINER_NS
    )


def holds_digits(body: bytes, count: int) -> bool:
    """Whether so many digits stand in a row anywhere, also in texts. A tenth of the time that `re` takes."""
    return body.translate(_ZEROS).find(b"0" * count) >= 0


def holds_endless_number(body: bytes) -> bool:
    """Whether there is a number of more than 64 digits: to read and write one takes the square of its length.

    A few such numbers do no harm: for small bodies the answer is no.
    """
    if len(body) <= _FEW_NUMBERS_BYTES:
        return False
    return holds_digits(body, _ENDLESS) and holds_digits(_outside_texts(_without_escapes(body)), _ENDLESS)


def _count(json: bytes) -> int:
    return (
        json.count(b",") * _VALUE_NS
        + sum(map(json.count, (b".", b"e", b"E"))) * _DECIMAL_NS
        + json.count(b":") * _KEY_NS
        + (json.count(b"{") + json.count(b"[")) * _CONTAINER_NS
    )


def _without_escapes(body: bytes) -> bytes:
    """Without backslashes in pairs and the quotes that one escapes: each quote left begins or ends a text."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_texts(body: bytes) -> bytes:
    return b"".join(body.split(b'"')[::2])
