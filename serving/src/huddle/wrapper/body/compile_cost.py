"""What a request's schemas and grammars cost the engine to compile, estimated from what the judge has counted.

Seconds of one core for a vocabulary of 128,000, measured with xgrammar 0.2.7 and 0.2.8 (vLLM 0.26.0, 0.32.0), which
differ by 5 %: `{"maxLength": 100}` 3.1, `[a-z]{1,100}` 1.0, hundred times `[a-z]+` in an expression 0.27, a grammar of
500 short rules 29, 800 optional properties 1.9, 4,000 short texts of an enum 0.06, an object of ten texts 0.03,
hundred times `a?` 1.5 and two hundred times 6.8. In vLLM
0.32.0: 2,000 and 4,000 choices of 52 characters that begin alike 3.2 and 9.5, 4,000 of 22 characters 0.9. Objects with
`multipleOf` (llguidance, vocabulary of 260), 1,000 and 3,000 in an `anyOf`: 1.7 and 8.9.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from huddle.wrapper.body.grammar_signs import without_texts

FREE_S: Final = 0.25
"""What costs less needs no leave: schemas without lengths, expressions and grammars do."""

_COUNTED_MOST: Final = 200  # xgrammar unrolls no further
_LENGTH_S: Final = 0.03
_REPETITION_S: Final = 0.01
_SIGN_S: Final = 0.003
_OPTIONAL_PAIR_S: Final = 1.5e-4  # what can be left out, next to each other: each may follow each
_GRAMMAR_S: Final = 0.0016
_PAIR_S: Final = 3e-6
_ALTERNATIVE_PAIR_S: Final = 8e-7  # llguidance, where the schema has what xgrammar lacks
_CHARACTERS_S: Final = 3e-10
_NAME_S: Final = 4e-4
_FREE_KEYS_S: Final = 0.11
_FORMAT_S: Final = 0.11
# `?`, `*`, `{0,…}`, `{,…}` and an empty branch
_OPTIONAL: Final = re.compile(r"(?<!\()\?|\*|\{\s*[0,]|\|\)|\((?:\?:)?\||\|\|")


@dataclass(frozen=True, slots=True)
class Compiling:
    """Something to compile: a digest of it, estimated seconds, and whether the engine keeps what it has compiled."""

    key: bytes
    cost_s: float


@dataclass(slots=True)
class Cost:
    """The estimate, as it grows in a walk over schemas."""

    _seconds: float = 0.0
    _characters: int = 0  # of what is said word for word: texts that begin alike cost by the square of these
    _seen: set[str | float] = field(default_factory=set)  # equal lengths and expressions are compiled once

    @property
    def seconds(self) -> float:
        """The estimate of what has been counted."""
        return self._seconds + _CHARACTERS_S * self._characters**2

    def length(self, most: float) -> None:
        """A `minLength` or `maxLength`."""
        if self._new(most):
            self._seconds += _LENGTH_S * min(most, _COUNTED_MOST)

    def texts(self, texts: Iterable[Any]) -> None:
        """Texts word for word: choices, constants, names of properties."""
        self._characters += sum(len(text) for text in texts if isinstance(text, str))

    def alternatives(self, count: int) -> None:
        """Schemas of which one, some or all hold."""
        self._seconds += _NAME_S * count + _ALTERNATIVE_PAIR_S * count**2

    def properties(self, names: Collection[str]) -> None:
        """The properties of one object, which may all be left out: each may follow each."""
        self.texts(names)
        self._seconds += _NAME_S * len(names) + _PAIR_S * len(names) ** 2

    def free_keys(self) -> None:
        """Properties of any name."""
        self._seconds += _FREE_KEYS_S

    def format(self, name: str) -> None:
        """A `format`, which the engine makes an expression of."""
        if self._new(name):
            self._seconds += _FORMAT_S

    def expression(self, regex: str, repetitions: int) -> None:
        """A regular expression."""
        if self._new(regex):
            self._characters += len(regex)
            signs = sum(map(regex.count, "[.\\*+"))
            self._seconds += _SIGN_S * signs + _optional_s(regex) + _REPETITION_S * min(repetitions, _COUNTED_MOST)

    def grammar(self, text: str, repetitions: int) -> None:
        """A grammar."""
        self._characters += len(text)
        unquoted = without_texts(text)
        self._seconds += (
            _GRAMMAR_S * len(unquoted) + _optional_s(unquoted) + _REPETITION_S * min(repetitions, _COUNTED_MOST)
        )

    def _new(self, what: str | float) -> bool:
        known = what in self._seen
        self._seen.add(what)
        return not known


def _optional_s(text: str) -> float:
    return _OPTIONAL_PAIR_S * sum(1 for _ in _OPTIONAL.finditer(text)) ** 2
