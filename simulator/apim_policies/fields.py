"""Reading an element: which attributes and children it may have, which values they take. Anything else is a fault."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from gateway_policies.source import Element, PolicyFault, Text
from simulator.apim_policies.exchange import Exchange, Failed, LastError
from simulator.apim_policies.expressions import EvaluationError, Expression, compile_expression, is_expression
from simulator.apim_policies.types import BOOLEAN, NUMBER, STRING

Reader: TypeAlias = Callable[[Text], Any]
Value: TypeAlias = Callable[[Exchange], str]


def attributes(
    element: Element, required: dict[str, Reader], optional: dict[str, Reader] | None = None
) -> dict[str, Any]:
    """The attributes of an element, read; an optional one that is missing is left out.

    Raises:
        PolicyFault: one is missing, not known, or has a value that it cannot have.
    """
    readers = {**required, **(optional or {})}
    for name, text in element.attributes.items():
        if name not in readers:
            allowed = ", ".join(sorted(readers)) or "none"
            raise PolicyFault(text.place, f"<{element.tag}> has no attribute {name!r} here; known: {allowed}")
    for name in required:
        if name not in element.attributes:
            raise PolicyFault(element.place, f"<{element.tag}> needs the attribute {name!r}")
    return {name: readers[name](text) for name, text in element.attributes.items()}


def children(element: Element, allowed: Collection[str], *, least: int = 0, most: int | None = None) -> list[Element]:
    """The elements inside one, all of them allowed there.

    Raises:
        PolicyFault: one is not, or there are too few or too many.
    """
    for child in element.children:
        if child.tag not in allowed:
            known = ", ".join(sorted(allowed)) or "nothing"
            raise PolicyFault(child.place, f"<{child.tag}> is not known inside <{element.tag}>; known: {known}")
    count = len(element.children)
    if count < least or (most is not None and count > most):
        raise PolicyFault(
            element.place, f"<{element.tag}> has {count} elements inside; allowed: {least}-{most or 'many'}"
        )
    return element.children


def no_text(element: Element) -> None:
    """Refuse text between elements.

    Raises:
        PolicyFault: there is some.
    """
    if element.text is not None:
        raise PolicyFault(element.text.place, f"text is not known inside <{element.tag}>")


def content(element: Element) -> Text:
    """The text of an element that holds nothing else.

    Raises:
        PolicyFault: it holds something else, or no text.
    """
    attributes(element, {})
    children(element, ())
    if element.text is None:
        raise PolicyFault(element.place, f"<{element.tag}> is empty")
    return element.text


def literal(text: Text) -> str:
    """A fixed text."""
    if is_expression(text.value):
        raise PolicyFault(text.place, "an expression is not allowed here")
    return text.value


def whole_number(text: Text) -> int:
    """A fixed number, 0 or more."""
    if not text.value.isdecimal():
        raise PolicyFault(text.place, f"{text.value!r} is not a whole number")
    return int(text.value)


def positive(text: Text) -> int:
    """A fixed number, 1 or more."""
    number = whole_number(text)
    if number == 0:
        raise PolicyFault(text.place, "0 is not allowed here")
    return number


def one_of(*words: str) -> Reader:
    """One of some words."""

    def read(text: Text) -> str:
        if text.value not in words:
            raise PolicyFault(text.place, f"{text.value!r} is not known here; known: {', '.join(words)}")
        return text.value

    return read


def boolean(text: Text) -> bool:
    """`true` or `false`."""
    return bool(one_of("true", "false")(text) == "true")


def value(text: Text) -> Value:
    """A text, fixed or by an expression."""
    if not is_expression(text.value):
        return lambda _: text.value
    return _evaluator(compile_expression(text), text, STRING, NUMBER)


def condition(text: Text) -> Callable[[Exchange], bool]:
    """An expression that is true or false."""
    evaluate = _evaluator(compile_expression(text), text, BOOLEAN)
    return lambda exchange: evaluate(exchange) == "True"


def _evaluator(expression: Expression, text: Text, *kinds: str) -> Value:
    if expression.kind not in kinds:
        raise PolicyFault(text.place, f"gives {expression.kind}; allowed here: {', '.join(kinds)}")

    def evaluate(exchange: Exchange) -> str:
        try:
            return str(expression.evaluate(exchange))
        except EvaluationError as error:
            fault = LastError("expression", "ExpressionValueEvaluationFailure", f"{text.place}: {error}")
            raise Failed(500, fault) from None

    return evaluate
