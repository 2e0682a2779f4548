"""Grammars that say nothing: `root ::= root` and the like, which make the engine fail (500) once it has compiled them.

Only the form `name ::= …` is read, and only as far as is needed: what cannot be read is the engine's to judge.
"""

import re
from collections.abc import Mapping
from typing import Final

from huddle.wrapper.body.grammar_signs import signs_of

_RULE: Final = re.compile(r"^[ \t]*([A-Za-z_][\w-]*)[ \t]*::=", re.MULTILINE)
_ROOT: Final = "root"
_STEPS_MOST: Final = 100_000  # about 60 ms; a grammar that takes more is the engine's to judge

_Can = tuple[bool, bool]
"""Whether something can begin with a character, and whether it can be empty."""
_ALONE: Final[Mapping[str, _Can]] = {'""': (False, True), "''": (False, True), "[]": (False, False)}


def rules_of(grammar: str) -> dict[str, list[str]]:
    """The signs of each rule, by its name."""
    parts = _RULE.split(grammar)
    return {name: signs_of(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def says_nothing(rules: Mapping[str, list[str]]) -> bool:
    """Whether no text at all, not even an empty one, can come of a grammar's root."""
    if _ROOT not in rules:
        return False
    can: dict[str, _Can] = dict.fromkeys(rules, (False, False))
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, signs in rules.items():
        for sign in signs:
            if sign in users:
                users[sign].add(name)
    pending, steps = set(rules), 0
    while pending:
        name = pending.pop()
        steps += len(rules[name])
        if steps > _STEPS_MOST:
            return False
        found = _alternatives(rules[name], can)
        if found != can[name]:
            can[name] = found
            pending |= users[name]
    return can[_ROOT] == (False, False)


def _alternatives(signs: list[str], can: dict[str, _Can]) -> _Can:
    """What a rule's body can do, as far as is known of the rules."""
    around: list[tuple[_Can, _Can]] = []
    whole: _Can = (False, False)  # of the alternatives before
    this: _Can = (False, True)  # of this alternative so far
    before: _Can = this  # of it without its last element
    for sign in signs:
        if sign == "(":
            around.append((whole, this))
            whole, this = (False, False), (False, True)
        elif sign == "|":
            whole, this = _either(whole, this), (False, True)
        elif sign == ")":
            group = _either(whole, this)
            whole, before = around.pop() if around else ((False, False), (False, True))
            this = _then(before, group)
        elif sign in "*?" or sign.startswith(("{0", "{,")):
            this = (this[0], this[1] or before[1])
        elif sign[0] not in "+{":
            before = this
            this = _then(this, can.get(sign) or _ALONE.get(sign, (True, False)))
    return _either(whole, this)


def _either(one: _Can, other: _Can) -> _Can:
    return one[0] or other[0], one[1] or other[1]


def _then(first: _Can, second: _Can) -> _Can:
    return first[0] or (first[1] and second[0]), first[1] and second[1]
