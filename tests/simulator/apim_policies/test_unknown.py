"""What the lab does not know it refuses, by file, line and column, before the first request."""

from __future__ import annotations

import re

import pytest

from gateway_policies.source import PolicyFault, parse
from simulator.apim_policies.compiler import ELEMENTS, Document, compile_scopes
from simulator.apim_policies.types import MEMBERS

from .lab import service

POLICY = """<policies>
  <inbound>
    {}
  </inbound>
  <backend><base /></backend>
  <outbound><base /></outbound>
  <on-error><base /></on-error>
</policies>"""
HEADER = '<set-header name="a" exists-action="override"><value>{}</value></set-header>'
BY_KEY = '<rate-limit-by-key calls="1" renewal-period="60" counter-key="{}" />'


def fault(text: str) -> str:
    with pytest.raises(PolicyFault) as caught:
        compile_scopes([Document("own.xml", text)], {"known": "x"})
    return str(caught.value)


@pytest.mark.parametrize(
    ("inside", "column", "sentence"),
    [
        ("<find-and-replace />", 5, "<find-and-replace> is not known here; known: base, choose"),
        ("<forward-request />", 5, "<forward-request> is not allowed in <inbound>; allowed: backend"),
        ('<base id="x" />', 15, "<base> has no attribute 'id' here; known: none"),
        ('<set-header name="a" />', 5, "<set-header> needs the attribute 'exists-action'"),
        ('<set-header name="a" exists-action="append" />', 41, "'append' is not known here; known: override, delete"),
        ('<set-header name="a" exists-action="override" />', 5, "<set-header> has 0 elements inside; allowed: 1-1"),
        (HEADER.format("<x />"), 58, "<x> is not known inside <value>; known: nothing"),
        (HEADER.format(""), 51, "<value> is empty"),
        (HEADER.format("{{other}}"), 58, "there is no named value 'other'"),
        (HEADER.format("@{ return 1; }"), 58, "holds statements; the lab knows one expression"),
        (HEADER.format("@(context.User.Id)"), 68, "Context has no 'User' that the lab knows"),
        (HEADER.format("@(context.Product.Name)"), 76, "Product has no 'Name' that the lab knows"),
        (HEADER.format("@(contxt.Product.Id)"), 60, "'contxt' is not known here"),
        (HEADER.format('@(context.Product.Id + "x")'), 79, "'+' is not known here"),
        (HEADER.format("@(context.RequestId.ToString(1))"), 78, "ToString takes () in the lab"),
        (HEADER.format("@(context.RequestId.ToString()"), 87, "the expression ends too early"),
        (HEADER.format("@(context.)"), 68, "the expression ends too early"),
        (HEADER.format("@(context.Product)"), 58, "gives Product; allowed here: String, Int32"),
        (HEADER.format("@(context.Product.Id == 1)"), 79, "== compares String with Int32"),
        (HEADER.format("@(context.Product.Id / 1)"), 79, "/ needs whole numbers"),
        (HEADER.format("@(1 || 2)"), 62, "|| needs truth values, not Int32"),
        (HEADER.format("@(1 2)"), 62, "'2' is not known here"),
        (BY_KEY.format("x").replace('"60"', '"301"'), 50, "301 s is too long; allowed: 1-300"),
        (BY_KEY.format("x").replace('"1"', '"0"'), 31, "0 is not allowed here"),
        (BY_KEY.format("x").replace('"1"', '"many"'), 31, "'many' is not a whole number"),
        ("<choose />", 5, "<choose> has 0 elements inside"),
        ("<choose><otherwise /></choose>", 5, "<choose> needs a <when>"),
        ('<choose><when condition="@(1)" /></choose>', 30, "gives Int32; allowed here: Boolean"),
        ('<choose><when condition="true" /></choose>', 30, "holds statements"),
        ('<llm-token-limit counter-key="x" estimate-prompt-tokens="true" />', 5, "<llm-token-limit> limits nothing"),
        ('<rewrite-uri template="/{x}" copy-unmatched-params="false" />', 28, "the lab knows fixed templates"),
        ('<set-query-parameter name="@(1)" exists-action="delete" />', 32, "an expression is not allowed here"),
    ],
)
def test_an_unknown_thing_is_refused_where_it_stands(inside: str, column: int, sentence: str) -> None:
    found = fault(POLICY.format(inside))
    assert found.startswith(f"own.xml, line 3, column {column}: {sentence}"), found


def test_documents_that_are_none_are_refused() -> None:
    assert fault("<policies><inbound></policies>").startswith("own.xml, line 1, column 31: is not well-formed XML")
    assert fault("<fragment />") == "own.xml, line 1, column 1: <fragment> is not <policies>"
    assert "<inbond> is not known inside <policies>" in fault("<policies><inbond /></policies>")


def test_the_lab_knows_no_more_than_our_policies_use() -> None:
    """Each element and each member is in one of them: what is not imitated cannot be imitated wrongly."""
    made = service()
    texts = [api.policy for api in made.apis] + [product.policy for product in made.products]
    texts += [operation.policy for api in made.apis for operation in api.operations if operation.policy]
    used = {node.tag for text in texts for node in parse(text, "x").all()}
    assert used >= ELEMENTS
    expressions = " ".join(re.findall(r"@\((.*?)\)(?=[\"<])", "\n".join(texts)))
    for members in MEMBERS.values():
        for name in members:
            assert re.search(rf"\.{name}\b", expressions), name


@pytest.mark.parametrize("place", ["Place", "Text"])
def test_places_are_counted_from_one_in_characters(place: str) -> None:
    root = parse("<a>\n <é b=\"x\"\n  c='ö@(1)'> \n  <!-- > --><b x='>' />täxt</é></a>", "f")
    (child,) = root.children
    assert (child.place.line, child.place.column) == (2, 2)
    if place == "Place":
        found = {name: (text.place.line, text.place.column) for name, text in child.attributes.items()}
        assert found == {"b": (2, 8), "c": (3, 6)}
    else:
        assert child.text is not None
        assert (child.text.value, child.text.place.line, child.text.place.column) == ("täxt", 4, 24)


def test_named_values_are_filled_in() -> None:
    text = POLICY.format(HEADER.format("{{known}}"))
    assert compile_scopes([Document("own.xml", text)], {"known": "x"})
