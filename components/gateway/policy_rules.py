"""What no policy may contain, whoever wrote it: what would buffer a stream, leak a key or skip a limit. Pure.

Sources: azure_facts 5.5-5.7 and pulumi_facts 11 (Microsoft's pages on server-sent events and forward-request).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

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


def violations(text: str) -> list[str]:
    """Every broken rule, as a sentence each; empty for a policy that may be sent."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - expat resolves nothing external
    except ElementTree.ParseError as error:
        line, column = error.position
        return [f"line {line}, column {column + 1}: is not well-formed XML ({error})"]
    return [*_structure(root), *(fault for section in root for fault in _in_section(section))]


def _structure(root: ElementTree.Element) -> Iterator[str]:
    if root.tag != "policies":
        yield f"<{root.tag}> is not a policy document; the outermost element is <policies>"
    names = [section.tag for section in root]
    for name in names:
        if name not in SECTIONS:
            yield f"<{name}> is not a section; allowed: {', '.join(SECTIONS)}"
    for name in SECTIONS:
        if names.count(name) != 1:
            yield f"<{name}> stands {names.count(name)} times; allowed: once, so that nothing is inherited unseen"


def _in_section(section: ElementTree.Element) -> Iterator[str]:
    forwards = section.find(".//forward-request") is not None
    if section.find("base") is None and not forwards:
        yield f"<{section.tag}> has no <base />: it would switch off what an outer policy does"
    if section.find("base") is not None and forwards:
        yield f"<{section.tag}> forwards and has <base />: the request would be sent twice"
    answering = {child for answer in section.iter("return-response") for child in answer.iter()}
    for element in section.iter():
        yield from _element(element, answering=element in answering)
        yield from _expressions(element)


def _element(element: ElementTree.Element, *, answering: bool) -> Iterator[str]:
    if element.tag in BUFFERING:
        yield f"<{element.tag}> reads or keeps a body, which holds back a stream"
    match element.tag:
        case "forward-request":
            yield from _forward(element)
        case "set-body" if not answering:
            yield "<set-body> outside <return-response> replaces a body, which holds back a stream"
        case "set-header" | "set-query-parameter" if (action := element.get("exists-action")) not in REPLACING:
            yield (
                f"<{element.tag} name={element.get('name')!r}> has exists-action {action!r}: what the client sent "
                f"would stay; allowed: {', '.join(REPLACING)}"
            )
        case "llm-token-limit" if element.get("tokens-consumed-header-name"):
            yield "<llm-token-limit> can't tell the tokens of a stream in a header; remove tokens-consumed-header-name"
        case _:
            pass


def _forward(element: ElementTree.Element) -> Iterator[str]:
    if element.get("buffer-response") != "false":
        yield '<forward-request> needs buffer-response="false", or a stream arrives in lumps'
    timeout = element.get("timeout", "")
    if not timeout.isdigit() or not 1 <= int(timeout) <= LONGEST_FORWARD_S:
        yield f"<forward-request> has timeout {timeout!r}; allowed: 1-{LONGEST_FORWARD_S} s, stated"
    if element.get("follow-redirects", "false") != "false":
        yield "<forward-request> follows redirects, which could carry the backend key elsewhere"


def _expressions(element: ElementTree.Element) -> Iterator[str]:
    attributes = element.attrib.values()
    for value in (*attributes, (element.text or "").strip()):
        if "@(" not in value and "@{" not in value:
            continue
        if not (value.startswith("@(") and value.endswith(")")):
            yield f"{value!r} mixes an expression with text, or has several statements; allowed: one @(…), alone"
        if _NEEDS_ESCAPING.search(value) or (value in attributes and '"' in value):
            yield f"{value!r} has a character that XML and rawxml read differently"
        if "Body" in _ALLOWED_BODY_USE.sub("", value):
            yield f"{value!r} reads a body, which holds back a stream"
