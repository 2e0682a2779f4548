"""What each policy element may hold: attributes, their values, children, text. The facts are in `policy_elements.json`.

They say nothing of sections, scopes and tiers (docs/facts/api-management.md#elements-of-policies). Pure but for reading
the file; `python -m tools.contracts` makes it from Microsoft's schemas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from gateway_policies.source import Element, PolicyFault, Text
from huddle import data_file

FILE = Path(__file__).parent / "policy_elements.json"
UNCHECKED = frozenset({"base", "send-service-bus-message", "xsl-transform"})
"""Elements that there are and that no schema describes; they may hold anything."""
_KINDS = {
    "string": r"[\s\S]*",
    "boolean": r"true|false|0|1",
    "int": r"[+-]?\d+",
    "long": r"[+-]?\d+",
    "integer": r"[+-]?\d+",
    "nonNegativeInteger": r"\+?\d+",
    "positiveInteger": r"\+?0*[1-9]\d*",
    "unsignedInt": r"\d+",
    "float": r"[+-]?(\d+(\.\d*)?|\.\d+)([Ee][+-]?\d+)?|[+-]?INF|NaN",
    "double": r"[+-]?(\d+(\.\d*)?|\.\d+)([Ee][+-]?\d+)?|[+-]?INF|NaN",
    "dateTime": r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?",
}
"""How XML Schema writes its simple types; ranges are left out."""


class Value(BaseModel):
    """An attribute, or an element's text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal[tuple(_KINDS)] = "string"  # type: ignore[valid-type]
    values: tuple[str, ...] = ()
    pattern: str = ""
    shortest: int = 0
    expression: bool = False
    required: bool = False

    def takes(self, value: str) -> bool:
        """Whether a value may stand here; a named value's place holder (`{{name}}`) may stand everywhere."""
        if "{{" in value or (self.expression and value.startswith(("@(", "@{"))):
            return True
        if self.values and value not in self.values:
            return False
        pattern = self.pattern or _KINDS[self.kind]
        return len(value) >= self.shortest and re.fullmatch(pattern, value.strip()) is not None

    @property
    def allowed(self) -> str:
        """In words."""
        plain = ", ".join(self.values) or (self.pattern and f"what matches {self.pattern}") or f"a value of {self.kind}"
        return f"{plain}, or an expression" if self.expression else plain


class Rule(BaseModel):
    """An element. `content` says more of its children than their names and `required`, `many`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attributes: dict[str, Value] = {}
    children: dict[str, Rule] = {}
    text: Value | None = None
    content: Literal["", "in order", "at least one", "policies", "the policy", "anything"] = ""
    required: bool = False
    many: bool = False


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    licence: str
    commit: str
    date: str
    elements: dict[str, Rule]


class ElementFault(PolicyFault):
    """What is wrong with one element; `words` go on after its name."""

    def __init__(self, element: Element, words: str, at: Text | Element | None = None) -> None:
        super().__init__((at or element).place, f"<{element.tag}> {words}")
        self.tag = element.tag
        self.words = words


@cache
def rules() -> dict[str, Rule]:
    """Every policy by name.

    Raises:
        InputError: the program's data cannot be read.
    """
    return data_file.load(FILE, _Document).elements


def faults(element: Element) -> Iterator[ElementFault]:
    """What is wrong with a policy in a section, and with everything in it."""
    rule = rules().get(element.tag)
    if rule is not None:
        yield from _faults(element, rule)
    elif element.tag not in UNCHECKED:
        yield ElementFault(element, "is not a policy of API Management")


def _faults(element: Element, rule: Rule) -> Iterator[ElementFault]:
    if rule.content == "the policy":
        yield from faults(element)
        return
    yield from _attributes(element, rule)
    if element.text is not None and rule.content != "anything":
        yield from _text(element, rule, element.text)
    if rule.content == "anything":
        return
    if rule.content == "policies":
        for child in element.children:
            yield from faults(child)
        return
    yield from _children(element, rule)


def _attributes(element: Element, rule: Rule) -> Iterator[ElementFault]:
    for name, value in rule.attributes.items():
        if value.required and name not in element.attributes:
            yield ElementFault(element, f"lacks the required attribute '{name}'")
    for name, text in element.attributes.items():
        known = rule.attributes.get(name)
        if known is None:
            yield ElementFault(element, f"has no attribute '{name}'; allowed: {_listed(rule.attributes)}", text)
        elif not known.takes(text.value):
            yield ElementFault(element, f"has {name} {text.value!r}; allowed: {known.allowed}", text)


def _text(element: Element, rule: Rule, text: Text) -> Iterator[ElementFault]:
    if rule.text is None:
        yield ElementFault(element, f"can't contain text; allowed inside: {_listed(rule.children)}", text)
    elif not rule.text.takes(text.value):
        yield ElementFault(element, f"has the text {text.value!r}; allowed: {rule.text.allowed}", text)


def _children(element: Element, rule: Rule) -> Iterator[ElementFault]:
    counts = Counter(child.tag for child in element.children)
    for name, child_rule in rule.children.items():
        if child_rule.required and not counts[name]:
            yield ElementFault(element, f"needs <{name}> inside")
        if not child_rule.many and counts[name] > 1:
            yield ElementFault(element, f"has <{name}> {counts[name]} times; allowed: once")
    if rule.content == "at least one" and not counts:
        yield ElementFault(element, f"is empty; allowed inside: {_listed(rule.children)}")
    names = list(rule.children)
    furthest = 0
    for child in element.children:
        if child.tag not in rule.children:
            yield ElementFault(element, f"can't contain <{child.tag}>; allowed inside: {_listed(rule.children)}", child)
            continue
        place = names.index(child.tag)
        if rule.content == "in order" and place < furthest:
            yield ElementFault(child, f"stands in the wrong place; the order in <{element.tag}> is {', '.join(names)}")
        furthest = max(furthest, place)
        yield from _faults(child, rule.children[child.tag])


def _listed(names: dict[str, Value] | dict[str, Rule]) -> str:
    return ", ".join(names) or "nothing"
