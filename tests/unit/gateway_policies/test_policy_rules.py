"""The rules that every policy of the program is held to, each by a policy that breaks it."""

from __future__ import annotations

import re

import pytest

from gateway_policies import render as policies
from gateway_policies.rules import violations
from tests.unit.builders import plan

GATEWAY = plan("dev", gateway={"cors_origins": ["https://chat.example.com"]}).gateway
TEXTS = {"api": policies.api_policy(GATEWAY), "product": policies.product_policy(GATEWAY.products[0])}
EMPTY = "<policies><inbound>{}<base /></inbound><backend><base /></backend><outbound><base /></outbound><on-error><base /></on-error></policies>"  # noqa: E501


def broken(text: str) -> list[str]:
    return [str(fault) for fault in violations(text)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_our_policies_break_no_rule(text: str) -> None:
    assert broken(text) == []


FORWARD = '<forward-request timeout="200" follow-redirects="false" buffer-request-body="true" buffer-response="false" fail-on-error-status-code="false" />'  # noqa: E501
BROKEN = {
    "buffers responses": (' buffer-response="false"', ' buffer-response="true"', "buffers the stream"),
    "does not say whether it buffers": (' buffer-response="false"', "", "buffers the stream"),
    "waits for longer than Azure": ('timeout="200"', 'timeout="240"', "timeout '240'; allowed: 1-239"),
    "does not wait at all": ('timeout="200"', 'timeout="0"', "timeout"),
    "does not say how long it waits": (' timeout="200"', "", "timeout ''"),
    "computes how long it waits": ('timeout="200"', 'timeout="@(900)"', "timeout"),
    "follows redirects": ('follow-redirects="false"', 'follow-redirects="true"', "redirects"),
    "sends twice": (FORWARD, f"{FORWARD}</retry></retry><base /><retry><retry>", "sent twice"),
    "adds a product": (
        'name="X-Huddle-Product" exists-action="override"',
        'name="X-Huddle-Product" exists-action="append"',
        "X-Huddle-Product.*append",
    ),
    "believes a client's product": (
        'name="X-Huddle-Product" exists-action="override"',
        'name="X-Huddle-Product" exists-action="skip"',
        "skip",
    ),
    "leaves the action to Azure": (
        'name="X-Huddle-Tenant" exists-action="override"',
        'name="X-Huddle-Tenant"',
        "X-Huddle-Tenant.*nothing",
    ),
    "keeps a key in the query": (
        'name="subscription-key" exists-action="delete"',
        'name="subscription-key" exists-action="skip"',
        "subscription-key",
    ),
    "validates bodies": ("<outbound>", '<outbound><validate-content max-size="1" />', "validate-content"),
    "caches": ("<outbound>", '<outbound><cache-store duration="1" />', "cache-store"),
    "replaces in bodies": ("<outbound>", '<outbound><find-and-replace from="a" to="b" />', "find-and-replace"),
    "logs bodies": ("<outbound>", '<outbound><log-to-eventhub logger-id="x">y</log-to-eventhub>', "log-to-eventhub"),
    "rewrites a body": ("<outbound>", "<outbound><set-body>x</set-body>", "set-body"),
    "hides it in a choice": (
        "<outbound>",
        '<outbound><choose><when condition="@(true)"><set-body>x</set-body></when></choose>',
        "set-body",
    ),
    "reads a response": (
        "<outbound>",
        '<outbound><set-variable name="x" value="@(context.Response.Body.As(0))" />',
        "reads a body",
    ),
    "reads a request": (
        "<outbound>",
        '<outbound><set-variable name="x" value="@(context.Request.Body.As(0))" />',
        "reads a body",
    ),
    "looks at a response's body": (
        "<outbound>",
        '<outbound><choose><when condition="@(context.Response.Body != null)" /></choose>',
        "reads a body",
    ),
    "skips the product's policy": (
        "    <base />\n    <!-- Who used",
        "    <!-- Who used",
        "inbound.*base",
    ),
    "skips outer errors": ("<on-error>\n    <base />", "<on-error>", "on-error.*base"),
    "retries without a pause": (' interval="1"', "", "<retry> lacks the required attribute 'interval'"),
    "lacks a section": ("<outbound>", "<outbond>", "outbond"),
    "has several statements": ("@(context.Product.Id)", "@{return context.Product.Id;}", "several statements"),
    "mixes text and expression": ("@(context.Product.Id)", "p-@(context.Product.Id)", "mixes"),
    "needs escaping": (
        'condition="@(context.Product == null)"',
        'condition="@(context.Product == null &amp;&amp; true)"',
        "read differently",
    ),
    "compares with markup": (
        'condition="@(context.Product == null)"',
        'condition="@(context.Api.Path.Length &gt; 1)"',
        "read differently",
    ),
    "quotes in an attribute": (
        'condition="@(context.Product == null)"',
        "condition='@(context.Product.Id == \"x\")'",
        "read differently",
    ),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_policy_is_refused_that(name: str) -> None:
    old, new, complaint = BROKEN[name]
    text = TEXTS["api"].replace(old, new, 1)
    assert text != TEXTS["api"], f"the API's policy no longer holds {old!r}"
    if name == "lacks a section":
        text = text.replace("</outbound>", "</outbond>")
    assert any(re.search(complaint, sentence) for sentence in broken(text)), broken(text)


def test_a_header_for_consumed_tokens_is_refused() -> None:
    text = TEXTS["product"].replace("estimate-prompt", 'tokens-consumed-header-name="x" estimate-prompt')
    assert any("stream in a header" in sentence for sentence in broken(text))


def test_what_is_not_xml_is_told_by_line_and_column() -> None:
    assert broken("<policies>\n  <inbound>\n</policies>") == [
        "policy, line 3, column 12: is not well-formed XML "
        "(Opening and ending tag mismatch: inbound line 2 and policies)"
    ]
    assert any("outermost element is <policies>" in sentence for sentence in broken("<policy />"))


def test_a_broken_rule_is_told_by_line_and_column() -> None:
    text = EMPTY.format('\n  <set-header name="a"\n exists-action="override"><value>a@(b)</value></set-header>')
    (sentence,) = broken(text)
    assert sentence.startswith("policy, line 3, column 34: 'a@(b)' mixes an expression with text")


def test_sections_stand_exactly_once() -> None:
    assert any(
        "<outbound> occurs 0 times" in sentence
        for sentence in broken(TEXTS["api"].split("<outbound>")[0] + "<on-error><base /></on-error></policies>")
    )
    twice = EMPTY.format("").replace("</policies>", "<outbound><base /></outbound></policies>")
    assert any("<outbound> occurs 2 times" in sentence for sentence in broken(twice))
