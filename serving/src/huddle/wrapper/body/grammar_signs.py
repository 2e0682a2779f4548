"""The signs of a grammar: texts, comments and the rest. Reads GBNF, and of Lark its expressions and comments."""

import re
from typing import Final

# What is opened and not closed reaches to the end, so that no text is searched twice.
_SIGN: Final = re.compile(
    r"""(?P<quoted>"(?:\\.?|[^"\\])*(?:"|\Z)|'(?:\\.?|[^'\\])*(?:'|\Z))"""
    r"|(?P<comment>#[^\n]*|//[^\n]*)|/(?:\\.?|[^/\\\n])*/?|\[(?:\\.?|[^\]\\])*(?:\]|\Z)"
    r"|[A-Za-z_][\w-]*|[()|*+?]|\{[\d, ]*\}|\S",
    re.DOTALL,
)


def signs_of(grammar: str) -> list[str]:
    """Names, operators, texts and classes, one after another, without comments."""
    return [sign[0] for sign in _SIGN.finditer(grammar) if sign.lastgroup != "comment"]


def without_texts(grammar: str) -> str:
    """What is not said word for word: the grammar without its texts and comments."""
    return _SIGN.sub(lambda sign: "" if sign.lastgroup else sign[0], grammar)
