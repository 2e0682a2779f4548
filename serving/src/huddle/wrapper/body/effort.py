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
_GRAMMAR: Final = b'"grammar"'
_CODED: Final = (rb"\u005", rb"\u006", rb"\u007")
"""Letters and brackets in escapes, which may be that word or one of the next."""
_GRAMMAR_BYTES: Final = 1024  # judging one takes up to the square of its length: 7 KB 50 ms
_EXPRESSIONS: Final = (b"pattern", b"regex")
_EXPRESSION_BYTES: Final = 8 * 1024  # judging one takes 1.3 µs a character
_BYTES_PER_NS: Final = 2  # in texts; 8 MB take 4 ms to decode
_ENDLESS: Final = 65  # digits
_FEW_NUMBERS_BYTES: Final = 64 * 1024
_ZEROS: Final = bytes(ord("0") if chr(i).isdigit() and i < 128 else i for i in range(256))
_OTHERS: Final = bytes(set(range(256)) - set(b'{[:,."eE\\u0123456789'))


class Signs:
    """What effort is told by: the signs of a JSON text that count for it, without the rest, and all digits as zeros.

    They are a fifth of most texts, and are taken out in the time in which one sign could be looked for in the whole.
    """

    __slots__ = ("_kept", "json")

    def __init__(self, json: bytes) -> None:
        self.json = json
        self._kept = json.translate(_ZEROS, _OTHERS)

    @property
    def openings(self) -> int:
        """Opening brackets, also in texts."""
        return self._kept.count(b"{") + self._kept.count(b"[")

    @property
    def escapes(self) -> tuple[int, int]:
        """Signs up to `\\u00ff` in escapes, and those of them that may be brackets."""
        json = self.json
        if rb"\u00" not in self._kept:  # which knows all digits as zeros
            return 0, 0
        return json.count(rb"\u00"), json.count(rb"\u005") + json.count(rb"\u007")

    def holds_digits(self, count: int) -> bool:
        """Whether so many digits stand in a row anywhere, also in texts."""
        zeros = b"0" * count
        return zeros in self._kept and zeros in self.json.translate(_ZEROS)

    @property
    def holds_endless_number(self) -> bool:
        """Whether there is a number of more than 64 digits: to read and write one takes the square of its length.

        A few such numbers do no harm: for small bodies the answer is no.
        """
        if len(self.json) <= _FEW_NUMBERS_BYTES or not self.holds_digits(_ENDLESS):
            return False
        return Signs(_outside_texts(_without_escapes(self.json))).holds_digits(_ENDLESS)

    @property
    def effort_ns(self) -> int:
        """Nanoseconds for a whole body; what stands inside of texts counts as text only."""
        body = self.json
        if len(body) <= _SMALL_BYTES:
            return len(body) * _VALUE_NS
        most = self._values_ns + self._kept.count(b'"') * _QUOTE_NS
        if most <= INLINE_NS:
            return most
        body = _without_escapes(body)
        quotes = body.count(b'"') * _QUOTE_NS
        if quotes > MOST_NS:
            return quotes  # taking it apart would take as long
        return quotes + Signs(_outside_texts(body))._values_ns + len(body) // _BYTES_PER_NS

    @property
    def most_ns_in_texts(self) -> int:
        """Nanoseconds at most, if texts hold JSON, too, which the judge of schemas reads. Prose is cheap."""
        escapes, brackets = self.escapes
        return (
            self._kept.count(b",") * _DECIMAL_NS
            + (self._kept.count(b":") + escapes) * _KEY_NS
            + (self.openings + brackets) * _CONTAINER_NS
        )

    @property
    def _values_ns(self) -> int:
        count = self._kept.count
        return (
            count(b",") * _VALUE_NS
            + sum(map(count, (b".", b"e", b"E"))) * _DECIMAL_NS
            + count(b":") * _KEY_NS
            + self.openings * _CONTAINER_NS
        )


def prepared_at_once(body: bytes) -> bool:
    """Whether a body takes so little that the event loop does it, whatever its texts hold."""
    size = len(body)
    if size <= _GRAMMAR_BYTES:
        return True
    if _GRAMMAR in body:
        return False
    signs = Signs(body)
    if signs.escapes[0] and any(word in body for word in _CODED):
        return False
    if size * _CONTAINER_NS <= INLINE_NS:
        return True  # nothing that it may hold takes longer
    if size > _EXPRESSION_BYTES and any(word in body for word in _EXPRESSIONS):
        return False
    return signs.effort_ns <= INLINE_NS and signs.most_ns_in_texts <= INLINE_NS


def _without_escapes(body: bytes) -> bytes:
    """Without backslashes in pairs and the quotes that one escapes: each quote left begins or ends a text."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_texts(body: bytes) -> bytes:
    return b"".join(body.split(b'"')[::2])
