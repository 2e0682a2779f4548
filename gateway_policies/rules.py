"""What no policy may contain, whoever wrote it: what would buffer a stream, leak a key or skip a limit. Pure.

What API Management itself refuses is `policy_elements`. Sources: docs/facts/api-management.md#streaming,
docs/facts/api-management.md#limits, docs/facts/api-management.md#keys-of-clients.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway_policies import policy_elements
from gateway_policies.source import Element, PolicyFault, Text, parse

SECTIONS = ("inbound", "backend", "outbound", "on-error")
LONGEST_FORWARD_S = 239
"""Azure cuts a connection that was silent for 4 minutes, whatever the policy says."""

REPLACING = ("override", "delete")
BUFFERING = frozenset(
    {
        "azure-openai-semantic-cache-lookup",
        "azure-openai-semantic-cache-store",
        "cache-lookup",
        "cache-store",
        "find-and-replace",
        "json-to-xml",
        "jsonp",
        "llm-content-safety",
        "llm-semantic-cache-lookup",
        "llm-semantic-cache-store",
        "log-to-eventhub",
        "mock-response",
        "redirect-content-urls",
        "trace",
        "validate-content",
        "validate-graphql-request",
        "xml-to-json",
        "xsl-transform",
    }
)
"""Elements that read, keep or rewrite a body; each of them holds back a stream or writes prompts somewhere."""

_ALLOWED_BODY_USE = re.compile(r"context\.Request\.Body [!=]= null")
_NEEDS_ESCAPING = re.compile(r"[<>&]")


def violations(text: str, file: str = "policy") -> list[PolicyFault]:
    """Every broken rule with its place; empty for a policy that may be sent."""
    try:
        root = parse(text, file)
    except PolicyFault as fault:
        return [fault]
    return [*_structure(root), *(fault for section in root.children for fault in _in_section(section))]


def _structure(root: Element) -> Iterator[PolicyFault]:
    if root.tag != "policies":
        yield PolicyFault(root.place, f"<{root.tag}> is not a policy document; the outermost element is <policies>")
    for section in root.children:
        if section.tag not in SECTIONS:
            yield PolicyFault(section.place, f"<{section.tag}> is not a section; allowed: {', '.join(SECTIONS)}")
    for name in SECTIONS:
        count = sum(section.tag == name for section in root.children)
        if count != 1:
            allowed = "once, so that nothing is inherited unseen"
            yield PolicyFault(root.place, f"<{name}> occurs {count} times; allowed: {allowed}")


def _in_section(section: Element) -> Iterator[PolicyFault]:
    tags = {element.tag for element in section.all()}
    has_base = any(child.tag == "base" for child in section.children)
    if not has_base and "forward-request" not in tags:
        yield PolicyFault(
            section.place, f"<{section.tag}> has no <base />: it would switch off what an outer policy does"
        )
    if has_base and "forward-request" in tags:
        yield PolicyFault(section.place, f"<{section.tag}> forwards and has <base />: the request would be sent twice")
    for child in section.children:
        yield from policy_elements.faults(child)
    yield from elements(section)


def elements(root: Element) -> Iterator[PolicyFault]:
    """The rules that hold for each element in a part of a policy."""
    answering = {inside for element in root.all() if element.tag == "return-response" for inside in element.all()}
    for element in root.all():
        yield from _element(element, answering=element in answering)
        yield from _expressions(element)


def _element(element: Element, *, answering: bool) -> Iterator[PolicyFault]:
    if element.tag in BUFFERING:
        yield PolicyFault(element.place, f"<{element.tag}> reads or keeps a body, which holds back a stream")
    match element.tag:
        case "forward-request":
            yield from _forward(element)
        case "set-body" if not answering:
            sentence = "<set-body> outside <return-response> replaces a body, which holds back a stream"
            yield PolicyFault(element.place, sentence)
        case "set-header" | "set-query-parameter" if (action := said(element, "exists-action")) not in REPLACING:
            name, shown = said(element, "name"), repr(action) if action else "nothing"
            yield PolicyFault(
                element.place,
                f"<{element.tag} name={name!r}> has exists-action {shown}: what the client sent would stay; "
                f"allowed: {', '.join(REPLACING)}",
            )
        case "llm-token-limit" if "tokens-consumed-header-name" in element.attributes:
            sentence = "<llm-token-limit> can't tell the tokens of a stream in a header; remove it"
            yield PolicyFault(element.attributes["tokens-consumed-header-name"].place, sentence)
        case _:
            pass


def _forward(element: Element) -> Iterator[PolicyFault]:
    if said(element, "buffer-response") != "false":
        yield PolicyFault(
            element.place, '<forward-request> needs buffer-response="false", or the gateway buffers the stream'
        )
    timeout = said(element, "timeout")
    if not timeout.isdecimal() or not 1 <= int(timeout) <= LONGEST_FORWARD_S:
        allowed = f"1-{LONGEST_FORWARD_S} s, stated"
        yield PolicyFault(element.place, f"<forward-request> has timeout {timeout!r}; allowed: {allowed}")
    if said(element, "follow-redirects") not in ("", "false"):
        sentence = "<forward-request> follows redirects, which could carry the backend key elsewhere"
        yield PolicyFault(element.place, sentence)


def _expressions(element: Element) -> Iterator[PolicyFault]:
    for text in expressions(element):
        value, attribute = text.value, text is not element.text
        if not (value.startswith("@(") and value.endswith(")")):
            sentence = "mixes an expression with text, or has several statements; allowed: one @(…), alone"
            yield PolicyFault(text.place, f"{value!r} {sentence}")
        if _NEEDS_ESCAPING.search(value) or (attribute and '"' in value):
            yield PolicyFault(text.place, f"{value!r} has a character that XML and rawxml read differently")
        if "Body" in _ALLOWED_BODY_USE.sub("", value):
            yield PolicyFault(text.place, f"{value!r} reads a body, which holds back a stream")


def expressions(element: Element) -> Iterator[Text]:
    """The texts of an element that API Management would evaluate."""
    for text in (*element.attributes.values(), *([element.text] if element.text else [])):
        if "@(" in text.value or "@{" in text.value:
            yield text


def said(element: Element, attribute: str) -> str:
    """An attribute's value; empty when it is not there."""
    return element.attributes[attribute].value if attribute in element.attributes else ""
