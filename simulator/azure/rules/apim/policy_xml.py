"""API Management policy documents: read, judge, and give back in the service's own layout.

`rawxml` may hold C# expressions (`@(…)`, `@{…}`) as they are written; in `xml` they must be XML-escaped. The service
stores neither text: a GET returns its own indentation with CRLF line ends (docs/facts/api-management.md#policy-text).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lxml import etree

from gateway_policies import policy_elements
from gateway_policies.source import Element, PolicyFault, lines, parse
from gateway_policies.source import read as read_xml
from simulator.azure.errors import ArmError, bad_request

SECTIONS: Final = ("inbound", "backend", "outbound", "on-error")
NAMED_VALUE: Final = re.compile(r"\{\{([A-Za-z0-9._-]+)\}\}")
# Where a policy may stand, for those that people misplace (Microsoft's policy reference, "Policy sections").
PLACES: Final = {
    "forward-request": frozenset({"backend"}),
    "rate-limit": frozenset({"inbound"}),
    "rate-limit-by-key": frozenset({"inbound"}),
    "quota": frozenset({"inbound"}),
    "quota-by-key": frozenset({"inbound"}),
    "llm-token-limit": frozenset({"inbound"}),
    "azure-openai-token-limit": frozenset({"inbound"}),
    "llm-emit-token-metric": frozenset({"inbound"}),
    "set-backend-service": frozenset({"inbound", "backend"}),
    "validate-jwt": frozenset({"inbound"}),
    "check-header": frozenset({"inbound"}),
    "ip-filter": frozenset({"inbound"}),
    "cors": frozenset({"inbound"}),
    "cache-lookup": frozenset({"inbound"}),
    "cache-store": frozenset({"outbound"}),
}
# Policies the Consumption gateway lacks (docs/facts/api-management.md#limits).
NOT_ON_CONSUMPTION: Final = frozenset(
    {"rate-limit-by-key", "quota-by-key", "llm-token-limit", "azure-openai-token-limit"}
)
_OPENERS: Final = {"(": ")", "{": "}", "[": "]"}


@dataclass(frozen=True)
class Statement:
    """One element, with the section it stands in."""

    name: str
    section: str
    attributes: dict[str, str]


@dataclass(frozen=True)
class PolicyDocument:
    """A judged policy."""

    text: str  # as a GET returns it
    statements: tuple[Statement, ...] = field(default_factory=tuple)
    named_values: frozenset[str] = frozenset()

    def attribute(self, element: str, name: str) -> Iterator[str]:
        """Plain values of an attribute (not expressions, not named values)."""
        for statement in self.statements:
            value = statement.attributes.get(name, "")
            if statement.name == element and value and not value.startswith("@") and "{{" not in value:
                yield value


def validation_error(message: str) -> ArmError:
    """API Management's 400 with its only message."""
    return bad_request("ValidationError", f"One or more fields contain incorrect values: {message}")


def read(text: str, policy_format: str, root: str, *, is_global: bool = False) -> PolicyDocument:
    """Parse and judge a document; `root` is `policies` or `fragment`.

    Raises:
        ArmError: ValidationError, naming element and line.
    """
    source = text if policy_format == "xml" else escape_expressions(text)
    try:
        tree = read_xml(source, f"'{root}'", comments=False)
    except PolicyFault as fault:
        hint = " In format 'xml' expressions must be XML-escaped; use 'rawxml'." if policy_format == "xml" else ""
        raise validation_error(f"{fault}.{hint}") from fault
    if tree.tag != root:
        raise validation_error(f"Error in element '{tree.tag}' on line 1, column 2: the root element must be '{root}'.")
    statements = tuple(_statements(tree, root))
    if root == "policies":
        _require_sections(tree, is_global=is_global)
    _require_declared(parse(source, f"'{root}'"))
    _require_places(statements)
    return PolicyDocument(
        text="\r\n".join(lines(tree, "\t")), statements=statements, named_values=frozenset(NAMED_VALUE.findall(text))
    )


def escape_expressions(text: str) -> str:
    """Make raw XML with C# expressions into XML: inside an expression, markup characters are escaped."""
    out: list[str] = []
    position = 0
    while position < len(text):
        if text.startswith("@@", position):
            out.append("@@")
            position += 2
        elif text[position] == "@" and text[position + 1 : position + 2] in ("(", "{"):
            end = _expression_end(text, position + 1)
            out.append(_escape(text[position:end]))
            position = end
        else:
            out.append(text[position])
            position += 1
    return "".join(out)


def _escape(expression: str) -> str:
    # Already escaped parts of an expression stay what they are.
    bare = re.sub(r"&(?!(?:amp|lt|gt|quot|apos|#\d+);)", "&amp;", expression)
    return bare.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _expression_end(text: str, start: int) -> int:
    """Position after the bracket that closes the one at `start`, strings and characters skipped."""
    stack: list[str] = []
    position = start
    while position < len(text):
        char = text[position]
        if char in "\"'" and stack:
            position = _string_end(text, position)
            continue
        if char in _OPENERS:
            stack.append(_OPENERS[char])
        elif stack and char == stack[-1]:
            stack.pop()
            if not stack:
                return position + 1
        position += 1
    return len(text)


def _string_end(text: str, start: int) -> int:
    quote = text[start]
    verbatim = text[start - 1] == "@" and quote == '"'
    position = start + 1
    while position < len(text):
        if text[position] == "\\" and not verbatim:
            position += 2
            continue
        if text[position] == quote:
            return position + 1
        position += 1
    return len(text)


def _statements(tree: etree._Element, root: str) -> Iterator[Statement]:
    if root == "fragment":
        for element in tree.iter():
            if element is not tree:
                yield Statement(str(element.tag), "", dict(element.attrib))
        return
    for section in tree:
        for element in section.iter():
            if element is not section:
                yield Statement(str(element.tag), str(section.tag), dict(element.attrib))


def _require_sections(tree: etree._Element, *, is_global: bool) -> None:
    for section in tree:
        if section.tag not in SECTIONS:
            raise validation_error(
                f"Error in element 'policies': section '{section.tag}' is not one of {', '.join(SECTIONS)}."
            )
        if is_global and any(child.tag == "base" for child in section):
            raise validation_error("Error in element 'base': there is nothing above the global policy.")


def _require_declared(root: Element) -> None:
    """Elements and attributes as Microsoft's schemas have them; the sentences are ours."""
    outer = (
        root.children if root.tag == "fragment" else [child for section in root.children for child in section.children]
    )
    found = [
        f"Error in element '{fault.tag}' on line {fault.place.line}, column {fault.place.column}: it {fault.words}."
        for element in outer
        for fault in policy_elements.faults(element)
    ]
    if found:
        raise validation_error(" ".join(found))


def _require_places(statements: tuple[Statement, ...]) -> None:
    for statement in statements:
        allowed = PLACES.get(statement.name)
        if statement.section and allowed and statement.section not in allowed:
            raise validation_error(
                f"Error in element '{statement.name}': this policy is not allowed in section '{statement.section}'."
            )
