"""The gateway's policies: files with a few placeholders, rendered to the one text that is sent to Azure. Pure.

API Management re-indents what it gets, and a difference in text is a difference to Pulumi (field bugs 10). So a policy
is sent in one canonical form, made from its meaning and not from how its file is laid out: LF, two spaces a level,
attributes on one line, no trailing blanks. It has no character that XML and `rawxml` read differently (`policy_rules`).
What the service's own serializer writes is UNVERIFIED beyond the two spaces of the REST reference's examples; should it
differ, a refresh shows a change that the next `up` sends again, without harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from string import Template
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from components.gateway.entities import Entity
from components.gateway.policy_rules import violations
from infra.plan import ProductPlan

_INDENT = "  "
_QUOTE = {'"': "&quot;"}


class PolicyError(ValueError):
    """A policy file of this program is wrong; nothing a user's input can cause."""


def api_policy() -> str:
    """What holds for every request: who may pass, what is stripped and set, how it is sent on, how errors look."""
    return render("api.xml", pool=Entity.POOL, backend_key=Entity.BACKEND_KEY)


def product_policy(product: ProductPlan) -> str:
    """A product's limits, for each subscription: requests and tokens per minute.

    Which models it may call is the wrapper's to enforce, by the product header: the wrapper reads the body anyway and
    knows the aliases.
    """
    return render(
        "product.xml", requests_per_minute=product.requests_per_minute, tokens_per_minute=product.tokens_per_minute
    )


def render(name: str, **values: object) -> str:
    """The canonical text of a policy file with its placeholders filled in.

    Raises:
        PolicyError: a placeholder has no value, a value no placeholder, or the policy breaks one of `policy_rules`.
    """
    return fill((files("components.gateway") / "policies" / name).read_text(encoding="utf-8"), name, values)


def fill(text: str, name: str, values: dict[str, object]) -> str:
    """`render` for a text at hand; `name` is what errors call it."""
    template = Template(text)
    wanted = set(template.get_identifiers())
    if wanted != values.keys() or not template.is_valid():
        raise PolicyError(f"{name}: placeholders are {sorted(wanted)}, values are {sorted(values)}")
    filled = template.substitute({key: _quoted(name, key, str(value)) for key, value in values.items()})
    broken = violations(filled)
    if broken:
        raise PolicyError(f"{name}: {'; '.join(broken)}")
    return canonical(filled)


def _quoted(name: str, key: str, value: str) -> str:
    """A value as XML text; it must stay a value, so nothing that API Management would evaluate is let in."""
    if any(start in value for start in ("@(", "@{", "{{")):
        raise PolicyError(f"{name}: the value of {key} would be evaluated as an expression")
    return escape(value, _QUOTE)


def canonical(text: str) -> str:
    """A well-formed document in the one layout that is sent."""
    parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))  # noqa: S314 - our own files
    return "\n".join(_lines(ElementTree.fromstring(text, parser), ""))  # noqa: S314


def _lines(element: ElementTree.Element, indent: str) -> Iterator[str]:
    content = (element.text or "").strip()
    if element.tag is ElementTree.Comment:  # type: ignore[comparison-overlap]  # typeshed knows text tags only
        yield f"{indent}<!-- {' '.join(content.split())} -->"
        return
    attributes = "".join(f' {key}="{escape(value, _QUOTE)}"' for key, value in element.items())
    if len(element):
        yield f"{indent}<{element.tag}{attributes}>"
        for child in element:
            yield from _lines(child, indent + _INDENT)
        yield f"{indent}</{element.tag}>"
    elif content:
        yield f"{indent}<{element.tag}{attributes}>{escape(content)}</{element.tag}>"
    else:
        yield f"{indent}<{element.tag}{attributes} />"
