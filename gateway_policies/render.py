"""The gateway's policies: files with a few placeholders, rendered to the one text that is sent to Azure. Pure.

API Management re-indents what it gets, and a difference in text is a difference to Pulumi
(docs/facts/api-management.md#policy-text). So a policy is sent in one canonical form, made from its meaning and
not from how its file is laid out: LF, two spaces a level, attributes on one line, no trailing
blanks. It has no character that XML and `rawxml` read differently (`policy_rules`).
What the service's own serializer writes is UNVERIFIED beyond the two spaces of the REST reference's examples; should it
differ, a refresh shows a change that the next `up` sends again, without harm.

A file is a template: `$name` in an attribute or a text is a value (an attribute whose value is None is left out), and
`<part name="…" />` is a place for elements, of which there may be none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from lxml import etree

from gateway_policies.entities import Entity, KeyParameter
from gateway_policies.rules import violations
from gateway_policies.source import PolicyFault, lines, read
from huddle import data_file
from huddle.errors import InputError
from plan.azure.gateway_model import GatewayPlan, GatewayProduct

_INDENT = "  "
_PART = "part"

Values = Mapping[str, object]
Parts = Mapping[str, Sequence[etree._Element]]


class PolicyError(InputError):
    """A policy file of this program is wrong; nothing a user's input can cause."""


def api_policy(gateway: GatewayPlan, key_header: str = KeyParameter.HEADER) -> str:
    """What holds for every request: who may pass, what is stripped and set, how it is sent on, how errors look."""
    return render(
        "api.xml",
        {
            "backend_key": gateway.entity_id(Entity.BACKEND_KEY),
            "key_header": KeyParameter.HEADER,
            "key_query": KeyParameter.QUERY,
        },
        {
            "cors": _cors(gateway.cors_origins),
            "inbound_fragments": _fragments(gateway, "inbound"),
            "outbound_fragments": _fragments(gateway, "outbound"),
            "errors": _errors(key_header),
        },
    )


def bearer_policy(api_url: str) -> str:
    """How a key in Authorization gets to the API at `api_url`, which is this gateway's own."""
    values = {"key_header": KeyParameter.HEADER, "key_query": KeyParameter.QUERY, "api_url": api_url}
    return render("bearer.xml", values, {"errors": _errors("Authorization")})


def rewrite_policy(path: str) -> str:
    """An operation's policy that asks the backend for another path."""
    return render("rewrite.xml", {"path": path})


def _errors(key_header: str) -> list[etree._Element]:
    return list(_filled(_file("errors.xml"), "errors.xml", {"key_header": key_header}, {}))


def product_policy(product: GatewayProduct) -> str:
    """A product's nodes, and its limits for each subscription: requests and tokens per minute, tokens per period.

    Which models it may call is the wrapper's to enforce, by the product header: the wrapper reads the body anyway and
    knows the aliases.
    """
    quota = product.token_quota
    return render(
        "product.xml",
        {
            "pool": product.pool,
            "requests_per_minute": product.requests_per_minute,
            "tokens_per_minute": product.tokens_per_minute,
            "token_quota": quota.tokens if quota else None,
            "token_quota_period": quota.period.value.capitalize() if quota else None,
            "quota_header": "X-RateLimit-Remaining-Quota-Tokens" if quota else None,
        },
    )


def _cors(origins: Sequence[str]) -> list[etree._Element]:
    if not origins:
        return []
    named = []
    for origin in origins:
        element = etree.Element("origin")
        element.text = origin
        named.append(element)
    return list(_filled(_file("cors.xml"), "cors.xml", {"key_header": KeyParameter.HEADER}, {"origins": named}))


def _fragments(gateway: GatewayPlan, section: str) -> list[etree._Element]:
    """The operator's own elements; `gateway_policies.load_fragments` has judged them."""
    wanted = [fragment for fragment in gateway.policy_fragments if fragment.section == section]
    return [element for fragment in wanted for element in read(fragment.text, fragment.file)]


def render(name: str, values: Values, parts: Parts | None = None) -> str:
    """The canonical text of a policy file with its placeholders filled in.

    Raises:
        InputError: the file cannot be read.
        PolicyError: a placeholder has no value, a value no placeholder, or the policy breaks one of `policy_rules`.
    """
    return fill(_text_of(name), name, values, parts)


def fill(text: str, name: str, values: Values, parts: Parts | None = None) -> str:
    """`render` for a text at hand; `name` is what errors call it.

    Raises:
        PolicyError: the text is not well-formed, lacks a value, or breaks a rule for policies.
    """
    try:
        template = read(text, name)
    except PolicyFault as fault:
        raise PolicyError(str(fault)) from None
    made = "\n".join(lines(_filled(template, name, values, parts or {}), _INDENT))
    if broken := violations(made, name):
        raise PolicyError("; ".join(map(str, broken)))
    return made


def canonical(text: str) -> str:
    """A document in the one layout that is sent; raises `PolicyFault` for one that cannot be read."""
    return "\n".join(lines(read(text, "policy"), _INDENT))


def _file(name: str) -> etree._Element:
    return read(_text_of(name), name)


def _text_of(name: str) -> str:
    return data_file.text(Path(__file__).parent / "xml" / name)


def _filled(root: etree._Element, name: str, values: Values, parts: Parts) -> etree._Element:
    wanted_values: set[str] = set()
    wanted_parts: set[str] = set()
    for element in [*root.iter()]:
        for key, value in [*element.items()]:
            wanted_values |= _names(value)
            _set_or_drop(element, key, _substitute(value, name, values))
        if element.text and element.tag is not etree.Comment:
            wanted_values |= _names(element.text)
            element.text = _substitute(element.text, name, values)
        for place in [child for child in element if child.tag == _PART]:
            key = place.get("name", "")
            wanted_parts.add(key)
            at = [*element].index(place)
            element[at : at + 1] = parts.get(key, ())
    if wanted_values != values.keys() or wanted_parts != parts.keys():
        wanted, given = sorted(wanted_values | wanted_parts), sorted({*values, *parts})
        raise PolicyError(f"{name}: placeholders are {wanted}, values are {given}")
    return root


def _names(text: str) -> set[str]:
    return set(Template(text).get_identifiers())


def _substitute(text: str, name: str, values: Values) -> str | None:
    """A text with its values; None for a placeholder that is the whole text and has the value None."""
    template = Template(text)
    if not template.is_valid():
        raise PolicyError(f"{name}: placeholders in {text!r} are not valid")
    wanted = template.get_identifiers()
    for key in wanted:
        # It must stay a value, so nothing that API Management would evaluate is let in.
        if any(start in str(values.get(key)) for start in ("@(", "@{", "{{")):
            raise PolicyError(f"{name}: the value of {key} would be evaluated as an expression")
    if [text] == [f"${key}" for key in wanted] and values.get(wanted[0], "") is None:
        return None
    return template.safe_substitute({key: str(value) for key, value in values.items()})


def _set_or_drop(element: etree._Element, key: str, value: str | None) -> None:
    if value is None:
        del element.attrib[key]
    else:
        element.set(key, value)
