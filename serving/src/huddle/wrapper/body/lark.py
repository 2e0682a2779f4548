"""Grammars in Lark's form as vLLM rewrites them before they are compiled (`convert_lark_to_ebnf` of 0.26.0).

What is judged must be what is compiled: a rule that leads back to itself, or thousands of rules, are no better in Lark.
"""

import re
from typing import Final

_COMMENT: Final = re.compile(r"(#|//).*$")
_NAME: Final = re.compile(r"\b[a-zA-Z_][a-zA-Z0-9_]*\b")
_TEXT: Final = re.compile(r'"[^"]*"')
_SINGLE_QUOTES: Final = re.compile(r"'([^']*)'")
_SIGNS: Final = str.maketrans(dict.fromkeys("+*?()|[]{}", " "))
_ROOT: Final = "root"


def is_lark(grammar: str) -> bool:
    """Whether vLLM takes it for Lark: no line has a `::=` before a comment."""
    lines = _lines(grammar)
    return bool(lines) and not any("::=" in line for line in lines)


def from_lark(grammar: str) -> str | None:
    """The grammar that vLLM makes of one in Lark; None where it cannot."""
    rules: list[tuple[str, list[str]]] = []
    used: set[str] = set()
    for line in _lines(grammar):
        is_more = line.startswith("|")
        if not is_more and ":" not in line:
            continue
        name, _, body = ("", "", line[1:]) if is_more else line.partition(":")
        if (is_more and not (rules and rules[-1][0])) or body.count("'") % 2 or body.count('"') % 2:
            return None
        body = _SINGLE_QUOTES.sub(r'"\1"', body).strip()
        used.update(_NAME.findall(_TEXT.sub("", body).translate(_SIGNS)))
        if is_more:
            rules[-1][1].append(body)
        else:
            rules.append((name.strip().strip("?"), [body]))
    names = [name for name, _ in rules]
    if not rules or used - {*names, _ROOT}:
        return None
    first = "start" if "start" in names else names[0]
    return "\n".join([f"{_ROOT} ::= {first}", *(f"{name} ::= {' | '.join(bodies)}" for name, bodies in rules if name)])


def _lines(grammar: str) -> list[str]:
    return list(filter(None, (_COMMENT.sub("", line).strip() for line in grammar.split("\n"))))
