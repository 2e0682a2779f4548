"""Policy expressions: the part of C# that our policies use, checked when a policy is loaded, evaluated per request.

Known are text, whole numbers, `null`, `==`, `!=`, `||`, `/`, members, `?.` and calls, on the members in `types.py`.
Anything else is a fault with its place. Source of the language: Microsoft's page on policy expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gateway_policies.source import Place, PolicyFault, Text
from simulator.apim_policies.types import BOOLEAN, MEMBERS, NULL, NUMBER, STRING, Kind, Method

_TOKEN = re.compile(
    r'\s*(?:(?P<text>"[^"\\]*")|(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>\?\.|==|!=|\|\||[./(),]))'
)


class EvaluationError(Exception):
    """What API Management calls ExpressionValueEvaluationFailure: here, a member of `null`."""


@dataclass(frozen=True)
class Expression:
    """A checked expression: its type, and how to get its value from an exchange."""

    kind: Kind
    evaluate: Callable[[Any], Any]


@dataclass(frozen=True)
class _Token:
    group: str
    value: str
    place: Place


def is_expression(text: str) -> bool:
    """Whether API Management would evaluate a value."""
    return text.startswith(("@(", "@{"))


def compile_expression(text: Text) -> Expression:
    """Check an `@(…)`.

    Raises:
        PolicyFault: with the place of what is not known.
    """
    if not (text.value.startswith("@(") and text.value.endswith(")")):
        raise PolicyFault(text.place, "holds statements; the lab knows one expression, @(…)")
    parser = _Parser(list(_tokens(text.value[2:-1], text.place.shifted(2))), text.place.shifted(len(text.value) - 1))
    return parser.whole()


def _tokens(source: str, start: Place) -> Iterator[_Token]:
    position = 0
    while source[position:].strip():
        found = _TOKEN.match(source, position)
        if found is None or found.lastgroup is None:
            skipped = len(source[position:]) - len(source[position:].lstrip())
            raise PolicyFault(start.shifted(position + skipped), f"{source[position:].strip()[0]!r} is not known here")
        group = found.lastgroup
        yield _Token(group, found[group], start.shifted(found.start(group)))
        position = found.end()


class _Parser:
    """Recursive descent, loosest operator first."""

    def __init__(self, tokens: list[_Token], end: Place) -> None:
        self._tokens = tokens
        self._end = end
        self._next = 0

    def whole(self) -> Expression:
        value = self._either()
        if (rest := self._peek()) is not None:
            raise PolicyFault(rest.place, f"{rest.value!r} is not known here")
        return value

    def _either(self) -> Expression:
        left = self._equality()
        while operator := self._take("||"):
            right = self._equality()
            for side in (left, right):
                if side.kind != BOOLEAN:
                    raise PolicyFault(operator.place, f"|| needs truth values, not {side.kind}")
            left = _or(left, right)
        return left

    def _equality(self) -> Expression:
        left = self._quotient()
        while operator := self._take("==", "!="):
            right = self._quotient()
            if NULL not in (left.kind, right.kind) and left.kind != right.kind:
                raise PolicyFault(operator.place, f"{operator.value} compares {left.kind} with {right.kind}")
            left = _equal(left, right, wanted=operator.value == "==")
        return left

    def _quotient(self) -> Expression:
        left = self._path()
        while operator := self._take("/"):
            right = self._path()
            if left.kind != NUMBER or right.kind != NUMBER:
                raise PolicyFault(operator.place, "/ needs whole numbers")
            left = _quotient(left, right)
        return left

    def _path(self) -> Expression:
        value = self._primary()
        while dot := self._take(".", "?."):
            value = self._member(value, lenient=dot.value == "?.")
        return value

    def _primary(self) -> Expression:
        token = self._advance()
        match token.group, token.value:
            case "text", value:
                return Expression(STRING, _constant(value[1:-1]))
            case "number", value:
                return Expression(NUMBER, _constant(int(value)))
            case "name", "null":
                return Expression(NULL, _constant(None))
            case "name", "context":
                return Expression("Context", lambda exchange: exchange)
            case "name", "Regex":
                return Expression("Regex", _constant(re))
            case _:
                raise PolicyFault(token.place, f"{token.value!r} is not known here")

    def _member(self, owner: Expression, *, lenient: bool) -> Expression:
        token = self._advance()
        member = MEMBERS.get(owner.kind, {}).get(token.value)
        if member is None:
            raise PolicyFault(token.place, f"{owner.kind} has no {token.value!r} that the lab knows")
        if isinstance(member, Method):
            arguments = self._arguments(member, token)
            return Expression(member.result, _call(owner, member, arguments))
        return Expression(member.kind, _get(owner, member.get, token.value, lenient=lenient))

    def _arguments(self, method: Method, name: _Token) -> list[Expression]:
        self._expect("(")
        arguments: list[Expression] = []
        while not self._take(")"):
            if arguments:
                self._expect(",")
            arguments.append(self._either())
        if tuple(argument.kind for argument in arguments) != method.takes:
            raise PolicyFault(name.place, f"{name.value} takes ({', '.join(method.takes)}) in the lab")
        return arguments

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _advance(self) -> _Token:
        token = self._peek()
        if token is None:
            raise PolicyFault(self._end, "the expression ends too early")
        self._next += 1
        return token

    def _take(self, *signs: str) -> _Token | None:
        token = self._peek()
        if token is None or token.group != "sign" or token.value not in signs:
            return None
        self._next += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._take(sign) is None:
            token = self._peek()
            raise PolicyFault(token.place if token else self._end, f"{sign!r} is missing")


def _constant(value: object) -> Callable[[Any], Any]:
    return lambda _: value


def _or(left: Expression, right: Expression) -> Expression:
    return Expression(BOOLEAN, lambda exchange: left.evaluate(exchange) or right.evaluate(exchange))


def _equal(left: Expression, right: Expression, *, wanted: bool) -> Expression:
    return Expression(BOOLEAN, lambda exchange: (left.evaluate(exchange) == right.evaluate(exchange)) is wanted)


def _quotient(left: Expression, right: Expression) -> Expression:
    return Expression(NUMBER, lambda exchange: left.evaluate(exchange) // right.evaluate(exchange))


def _get(owner: Expression, get: Callable[[Any], Any], name: str, *, lenient: bool) -> Callable[[Any], Any]:
    def evaluate(exchange: Any) -> Any:
        value = owner.evaluate(exchange)
        if value is not None:
            return get(value)
        if lenient:
            return None
        raise EvaluationError(f"{name} of null")

    return evaluate


def _call(owner: Expression, method: Method, arguments: list[Expression]) -> Callable[[Any], Any]:
    def evaluate(exchange: Any) -> Any:
        value = owner.evaluate(exchange)
        if value is None:
            raise EvaluationError("a call on null")
        return method.call(value, *(argument.evaluate(exchange) for argument in arguments))

    return evaluate
