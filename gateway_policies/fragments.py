"""What an operator may add to the gateway's policies, and what not: fragments are read and judged before they are used.

A fragment is an XML file `<fragment>…</fragment>` whose elements go into the API's policy: `inbound` after the
product's limits and before our own headers are set, `outbound` after everything else. What is allowed is a list, not
what is forbidden: API Management has more elements than anybody here has judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway_policies import policy_elements
from gateway_policies.entities import AZURE_OPENAI_KEY_HEADER, KeyParameter
from gateway_policies.rules import BUFFERING, elements, expressions, said
from gateway_policies.source import Element, Place, PolicyFault, Text, parse
from huddle.headers import BACKEND_KEY_HEADER, PRODUCT_HEADER, REQUEST_ID_HEADER, TENANT_HEADER

OWN_HEADERS = frozenset({BACKEND_KEY_HEADER, PRODUCT_HEADER, TENANT_HEADER, REQUEST_ID_HEADER})
_KEY_HEADERS = frozenset({KeyParameter.HEADER.value.lower(), AZURE_OPENAI_KEY_HEADER, "authorization"})
_BOTH = frozenset({"choose", "otherwise", "return-response", "set-body", "set-header", "set-status", "value", "when"})
_CHECKS = frozenset(
    {
        "address",
        "address-range",
        "audience",
        "audiences",
        "check-header",
        "claim",
        "client-application-ids",
        "application-id",
        "ip-filter",
        "issuer",
        "issuers",
        "openid-config",
        "rate-limit-by-key",
        "required-claims",
        "set-query-parameter",
        "validate-azure-ad-token",
        "validate-jwt",
    }
)
ALLOWED = {"inbound": _BOTH | _CHECKS, "outbound": _BOTH}
"""The elements that a fragment may hold, by the section it goes to."""
_LEAKING = frozenset(
    {
        "authentication-basic",
        "authentication-certificate",
        "authentication-managed-identity",
        "emit-metric",
        "get-authorization-context",
        "invoke-request",
        "proxy",
        "publish-event",
        "send-one-way-request",
        "send-request",
    }
)
_DECIDING = frozenset(
    {"base", "cors", "forward-request", "include-fragment", "retry", "rewrite-uri", "set-backend-service", "set-method"}
)
_TELLS_KEYS = ("PrimaryKey", "SecondaryKey", ".Key", "OriginalUrl", "QueryString", ".Query", ".Url", "Certificate")
_LONGEST_BYTES = 64 * 1024
_PLAIN_HEADER = re.compile(r"""Headers(?:\.GetValueOrDefault\(|\.ContainsKey\(|\[)\s*"[\w-]*"\s*[],)]""")
"""A header asked for by a name that stands there; one put together could be a key's."""


def fragment_faults(text: str, section: str, file: str) -> list[PolicyFault]:
    """Every reason why a fragment may not be used, with line and column; empty for one that may."""
    if (size := len(text.encode())) > _LONGEST_BYTES:
        return [PolicyFault(Place(file, 1, 1), f"has {size} bytes; allowed: up to {_LONGEST_BYTES}")]
    try:
        root = parse(text, file)
    except PolicyFault as fault:
        return [fault]
    return list(_faults(root, section))


def _faults(root: Element, section: str) -> Iterator[PolicyFault]:
    if root.tag != "fragment":
        yield PolicyFault(root.place, f"<{root.tag}> is no fragment; the outermost element is <fragment>")
    if not root.children or root.text is not None or root.attributes:
        yield PolicyFault(root.place, "<fragment> holds elements, and nothing else")
    for child in root.children:
        refused = [fault for element in child.all() for fault in _allowed(element, section)]
        yield from refused
        yield from elements(child)
        told = {fault.place for fault in refused}
        yield from (fault for fault in policy_elements.faults(child) if fault.place not in told)


def _allowed(element: Element, section: str) -> Iterator[PolicyFault]:
    if element.tag in _LEAKING:
        yield PolicyFault(element.place, f"<{element.tag}> sends parts of a request elsewhere, or fetches credentials")
    elif element.tag in _DECIDING:
        yield PolicyFault(
            element.place, f"<{element.tag}> decides where requests go or what is counted; that is the program's"
        )
    elif element.tag not in ALLOWED[section] | BUFFERING:
        known = ", ".join(sorted(ALLOWED[section]))
        yield PolicyFault(
            element.place, f"<{element.tag}> is not allowed in a fragment for {section}; allowed: {known}"
        )
    name = said(element, "name").strip()
    if element.tag == "set-header" and name.lower() in OWN_HEADERS | _KEY_HEADERS:
        yield PolicyFault(element.place, f"the header {name} is set by the program itself")
    for text in (*element.attributes.values(), *([element.text] if element.text else [])):
        yield from _no_secret(text, element)


def _no_secret(text: Text, element: Element) -> Iterator[PolicyFault]:
    if "{{" in text.value:
        yield PolicyFault(text.place, "named values hold secrets; a fragment can't use them")
    if text not in list(expressions(element)):
        return
    folded = text.value.casefold()
    if any(word in text.value for word in _TELLS_KEYS) or any(name in folded for name in _KEY_HEADERS):
        yield PolicyFault(text.place, f"{text.value!r} could show a client's key")
    elif "Headers" in _PLAIN_HEADER.sub("", text.value):
        allowed = 'Headers.GetValueOrDefault("NAME", …)'
        yield PolicyFault(text.place, f"{text.value!r} reads headers whose names can't be told; allowed: {allowed}")
