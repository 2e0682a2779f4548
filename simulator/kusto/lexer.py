"""A query's words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


class KustoError(Exception):
    """The query has something that is not imitated, or that is wrong."""


@dataclass(frozen=True)
class Word:
    """`kind` is `text`, `number`, `span`, `name` or `mark`."""

    kind: str
    text: str


_WORD: Final = re.compile(
    r"""(?P<gap>\s+|//[^\n]*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<span>\d+[smhd]\b)
    |(?P<number>\d+(?:\.\d+)?)
    |(?P<name>[A-Za-z_]\w*(?:-(?:expand|away)\b)?)
    |(?P<mark>==|!=|>=|<=|=~|[-+*/(),;|=<>\[\]:.])""",
    re.VERBOSE,
)


def words(query: str) -> list[Word]:
    """All words, without comments.

    Raises:
        KustoError: a character is part of none.
    """
    found, place = [], 0
    while place < len(query):
        match = _WORD.match(query, place)
        if match is None or match.lastgroup is None:
            raise KustoError(f"at {query[place : place + 20]!r}: not imitated")
        place = match.end()
        if match.lastgroup != "gap":
            found.append(Word(match.lastgroup, match[0]))
    return found
