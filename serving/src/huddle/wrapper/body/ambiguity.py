"""Expressions and grammars that the same text follows in very many ways: these keep the engine busy at every token.

The engine follows all the ways at once. Measured with xgrammar 0.2.7, one core: `([^x]+)+` takes 0.15 s for 2,000
characters, `(([^x]+)+)+` more than 12 s for 1,000, `((([^x]+)+)+)+` more than 12 s for 200; with something between,
`((([^x]+a)+a)+a)+`, 0.2 s for 200. `s ::= s s | [^x]` takes 0.1 s for 180, `e ::= e "+" e | "a"` next to nothing.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_REGEX_SIGN: Final = re.compile(
    r"\\.|\[\^?(?:\\.?|[^\]\\])*(?:\]|\Z)|\((?:\?(?:[:=!>]|<[=!]|P?<\w+>))?|\{[\d\s,]*\}|[*+?]+|.", re.DOTALL
)
_EMPTY: Final = frozenset({"^", "$", r"\b", r"\B", '""', "''"})
_OPERATOR: Final = re.compile(r"[()*+?{]")
_STEPS_MOST: Final = 3_000_000  # a grammar that takes more is none that people write
_BARE_MOST: Final = 2
_NESTED_MOST: Final = 3


class Nesting(NamedTuple):
    """How deeply repetitions without an end are nested in something, and whether it can be empty."""

    bare: int  # of the whole, with nothing that must stand between
    worst: int  # the same of any part
    all: int  # of any part, whatever stands between
    empty: bool


_CHARACTER: Final = Nesting(0, 0, 0, empty=False)


def is_ambiguous_regex(regex: str) -> bool:
    """Whether its repetitions are nested more deeply than the engine can follow."""
    found = _nesting((sign[0] for sign in _REGEX_SIGN.finditer(regex)), {})
    return found.worst > _BARE_MOST or found.all > _NESTED_MOST


def is_ambiguous_grammar(rules: Mapping[str, list[str]]) -> bool:
    """The same of rules (bare repetitions only), or whether a rule can be several of itself side by side."""
    known = dict.fromkeys(rules, _CHARACTER)
    for _ in range(_BARE_MOST + 2):  # so many steps from rule to rule show what is too deep, or empty
        known = {name: _nesting(signs, known) for name, signs in rules.items()}
        if any(found.worst > _BARE_MOST for found in known.values()):
            return True
    leads: dict[str, set[str]] = {name: set() for name in rules}  # what a rule can be, with nothing before or after
    several: list[tuple[str, set[str]]] = []
    for name, signs in rules.items():
        for branch in _branches(signs):
            names = [sign for sign in branch if not _OPERATOR.match(sign) and not _of(sign, known).empty]
            if rules.keys() >= set(names):
                leads[name].update(names)
                if len(names) > 1 or (names and any(_is_endless(sign) for sign in branch)):
                    several.append((name, set(names)))
    if len(several) * sum(map(len, leads.values())) > _STEPS_MOST:
        return True
    return any(all(_reaches(leads, other, name) for other in names) for name, names in several)


def _nesting(signs: Iterable[str], known: Mapping[str, Nesting]) -> Nesting:
    """Read signs from left to right; `known` says how it is with the names of rules."""
    around: list[tuple[list[Nesting], list[Nesting]]] = []
    branches: list[Nesting] = []
    elements: list[Nesting] = []
    for sign in signs:
        if sign[0] == "(":
            around.append((branches, elements))
            branches, elements = [], []
        elif sign == ")":
            group = _most([*branches, _row(elements)])
            branches, elements = around.pop() if around else ([], [])
            elements.append(group)
        elif sign == "|":
            branches.append(_row(elements))
            elements = []
        elif sign[0] not in "*+?{":
            elements.append(_of(sign, known))
        elif elements:
            bare, worst, nested, empty = elements[-1]
            more = int(_is_endless(sign))
            may_lack = sign.startswith(("*", "?", "{0", "{,"))
            elements[-1] = Nesting(bare + more, max(worst, bare + more), nested + more, empty or may_lack)
    while around:
        group = _most([*branches, _row(elements)])
        branches, elements = around.pop()
        elements.append(group)
    return _most([*branches, _row(elements)])


def _row(elements: list[Nesting]) -> Nesting:
    """One after another: what must stand there and does not repeat keeps the repetitions apart."""
    bare, worst, nested, empty = _most(elements) if elements else (0, 0, 0, True)
    apart = any(not element.bare and not element.empty for element in elements)
    return Nesting(0 if apart else bare, worst, nested, empty and all(element.empty for element in elements))


def _most(parts: list[Nesting]) -> Nesting:
    bare, worst, nested, empty = zip(*parts, strict=True)
    return Nesting(max(bare), max(worst), max(nested), any(empty))


def _of(sign: str, known: Mapping[str, Nesting]) -> Nesting:
    return known.get(sign, Nesting(0, 0, 0, empty=sign in _EMPTY))


def _is_endless(sign: str) -> bool:
    """Whether a sign repeats what stands before it without an end."""
    return sign.startswith(("*", "+", "?+", "?*")) or (sign[0] == "{" and sign.rstrip("} ").endswith(","))


def _branches(signs: list[str]) -> list[list[str]]:
    """The signs between the bars; groups are not kept apart."""
    branches: list[list[str]] = [[]]
    for sign in signs:
        if sign == "|":
            branches.append([])
        else:
            branches[-1].append(sign)
    return branches


def _reaches(leads: Mapping[str, set[str]], start: str, end: str) -> bool:
    seen, pending = {start}, [start]
    while pending:
        name = pending.pop()
        if name == end:
            return True
        pending += leads[name] - seen
        seen |= leads[name]
    return False
