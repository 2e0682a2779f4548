"""Policies against Microsoft's schemas: element by element, attribute by attribute."""

from __future__ import annotations

import pytest

from gateway_policies import policy_elements
from gateway_policies.fragments import ALLOWED
from gateway_policies.rules import BUFFERING
from gateway_policies.source import parse
from tests.unit.gateway_policies.wrong_policies import RETRY, TOKENS, WRONG

RIGHT = [
    RETRY.format("@(2)", "", '<forward-request timeout="10" />'),
    TOKENS.format('estimate-prompt-tokens="true" token-quota="9" token-quota-period="Monthly" '),
    TOKENS.format('estimate-prompt-tokens="{{estimate}}" '),
    "<base />",
    "<xsl-transform><anything /></xsl-transform>",
    '<rate-limit calls="{{calls}}" renewal-period=" 60 " />',
    "<set-body><order xmlns-x='any'>text<item /></order></set-body>",
    '<ip-filter action="allow"><address-range from="a" to="b" /><address>c</address><address>d</address></ip-filter>',
    "<cors><expose-headers><header>b</header></expose-headers><allowed-origins><origin>a</origin></allowed-origins></cors>",
    '<wait for="all"><send-request><set-url>u</set-url></send-request></wait>',
    '<return-response><set-status code="401" /><set-header name="a" /><set-header name="b" /></return-response>',
    '<choose><when condition="@(true)"><set-method>GET</set-method></when><when condition="0" /><otherwise /></choose>',
    '<emit-metric name="m" value="1.5" />',
]


def faults(policy: str) -> list[str]:
    return [str(fault) for fault in policy_elements.faults(parse(policy, "own.xml"))]


@pytest.mark.parametrize("policy", RIGHT)
def test_what_api_management_takes_has_no_fault(policy: str) -> None:
    assert faults(policy) == []


@pytest.mark.parametrize("what", WRONG)
def test_what_it_refuses_is_told_with_its_place(what: str) -> None:
    policy, words = WRONG[what]
    (found,) = faults(policy)
    assert words in found
    assert found.startswith("own.xml, line 1, column ")


def test_a_place_is_the_attributes_or_the_elements() -> None:
    assert faults('<choose>\n  <when condition="@(true)">\n    <set-header name="a" if="b" /></when></choose>') == [
        "own.xml, line 3, column 30: <set-header> has no attribute 'if'; allowed: id, name, exists-action"
    ]
    assert faults('<ip-filter action="allow">\n <a /></ip-filter>')[0].startswith(
        "own.xml, line 2, column 2: <ip-filter>"
    )


def test_every_fault_is_told() -> None:
    assert len(faults('<retry a="b" count="x"><teleport /></retry>')) == 5


def test_all_that_the_program_speaks_of_is_known() -> None:
    """Names in our own rules would never match if they were misspelt."""
    known = set(policy_elements.rules())
    inside = {name for rule in policy_elements.rules().values() for name in _names(rule)}
    assert set().union(*ALLOWED.values()) <= known | inside
    assert known | policy_elements.UNCHECKED >= BUFFERING
    assert policy_elements.UNCHECKED.isdisjoint(known), "a schema describes it now"


def _names(rule: policy_elements.Rule) -> set[str]:
    return set(rule.children).union(*(_names(child) for child in rule.children.values()))
