"""Policies and fragments: judged, resolved, reformatted."""

import re
import xml.etree.ElementTree as ET
from xml.sax.saxutils import quoteattr

import hypothesis
import pytest
from hypothesis import strategies as st

from simulator.azure.rules.apim import policy_xml
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError
from tests.simulator.azure.gateway_builders import backend, policy_inputs, product, product_policy
from tests.unit.gateway_policies.wrong_policies import WRONG


@pytest.mark.parametrize(
    ("inbound", "words"),
    [
        (
            '<set-backend-service backend-id="nowhere" />',
            r"'set-backend-service': Backend with id 'nowhere' could not be found",
        ),
        ('<include-fragment fragment-id="none" />', r"Policy fragment with id 'none' could not be found"),
        ("<set-header name='a'><value>{{missing}}</value></set-header>", r"Cannot find a property 'missing'"),
        ("<forward-request />", r"'forward-request': this policy is not allowed in section 'inbound'"),
        ("<broken>", r"'policies', line 1, column \d+: is not well-formed XML \(.* mismatch: broken"),
    ],
)
def test_policies_that_do_not_hold(service, inbound, words):
    product(service)
    with pytest.raises(RefusedError, match=rf"ValidationError.*{words}"):
        product_policy(service, inbound)


@pytest.mark.parametrize("what", WRONG)
def test_elements_and_attributes_are_judged(service, what):
    policy, words = WRONG[what]
    said = re.escape(words.partition("> ")[2] or words)
    product(service)
    with pytest.raises(
        RefusedError, match=rf"ValidationError.*Error in element '[\w-]+' on line 1, column \d+: .*{said}"
    ):
        product_policy(service, policy)


def test_the_root_the_sections_and_the_id(service):
    body = policy_inputs("")
    with pytest.raises(RefusedError, match=r"root element must be 'policies'"):
        service.create("apimanagement:Policy", "p", {**body, "value": "<policy />"})
    with pytest.raises(RefusedError, match=r"section 'sideways' is not one of"):
        service.create("apimanagement:Policy", "p", {**body, "value": "<policies><sideways /></policies>"})
    with pytest.raises(RefusedError, match=r"nothing above the global policy"):
        service.create("apimanagement:Policy", "p", body)
    with pytest.raises(RefusedError, match=r"policy's id must be 'policy', not 'mine'"):
        service.create("apimanagement:Policy", "p", {**body, "policyId": "mine"})


def test_raw_expressions_only_in_rawxml(service):
    product(service)
    inbound = '<set-variable name="a" value="@(context.Request.Headers.GetValueOrDefault("x","") == "1" && 1 < 2)" />'
    made = product_policy(service, inbound)
    assert made.outputs["format"] == "xml"
    assert "&amp;&amp; 1 &lt; 2" in made.outputs["value"]
    with pytest.raises(RefusedError, match=r"In format 'xml' expressions must be XML-escaped; use 'rawxml'"):
        service.change(made, format="xml")


def test_the_service_reformats_and_the_diff_stays_empty(service):
    product(service)
    made = product_policy(service, "<!-- note --><rate-limit calls='5' renewal-period='60' />")
    assert made.outputs["value"] != made.inputs["value"]
    assert '\r\n\t\t<rate-limit calls="5" renewal-period="60" />' in made.outputs["value"]
    fresh = service.refresh(made)
    assert fresh.inputs == made.inputs and not service.diff(fresh, made.inputs).changes
    edited = policy_inputs("<rate-limit calls='6' renewal-period='60' />", productId="team")
    assert service.diff(fresh, edited).detailed.keys() == {"value"}


def test_an_edit_by_somebody_else_is_drift(service):
    product(service)
    made = product_policy(service, "")
    with service.cloud.store.transaction() as state:
        state.get(made.id).properties["value"] = "<policies />"
    assert service.diff(service.refresh(made), made.inputs).diffs == ["value"]


def test_fragments(service):
    body = b.in_gateway(
        id="strip", format="rawxml", value="<fragment><set-header name='a' exists-action='delete' /></fragment>"
    )
    fragment = service.create("apimanagement:PolicyFragment", "strip", body)
    product(service)
    policy = product_policy(service, '<include-fragment fragment-id="strip" />')
    with pytest.raises(
        RefusedError, match=r"(?s)The Policy Fragment 'strip' is used by the following entities:.*/products/team"
    ):
        service.delete(fragment)
    service.delete(policy)
    service.delete(fragment)
    with pytest.raises(RefusedError, match=r"root element must be 'fragment'"):
        service.create("apimanagement:PolicyFragment", "bad", {**body, "value": "<policies />"})


def test_a_backend_named_by_a_policy_stays(service):
    product(service)
    made = backend(service)
    product_policy(service, '<set-backend-service backend-id="node-1" />')
    with pytest.raises(RefusedError, match=r"(?s)The Backend 'node-1' is used by.*/products/team/policies/policy"):
        service.delete(made)


def test_expressions_as_backend_ids_are_not_judged(service):
    product(service)
    assert product_policy(service, '<set-backend-service backend-id="@((string)context.Variables["b"])" />').id


def test_consumption_lacks_policies(ground):
    b.gateway(ground, tier="Consumption", capacity=0)
    product(ground)
    with pytest.raises(RefusedError, match=r"'llm-token-limit': this policy is not supported in tier 'Consumption'"):
        product_policy(
            ground, '<llm-token-limit counter-key="k" tokens-per-minute="5" estimate-prompt-tokens="true" />'
        )


ATTRIBUTE = st.text("ab&<>\"'() {}@", max_size=8)


@hypothesis.given(st.lists(ATTRIBUTE, max_size=4))
def test_the_services_layout_is_a_fixed_point(values):
    inner = "".join(f'<set-variable name={quoteattr(value)} value="" />' for value in values)
    text = f"<policies><inbound>{inner}</inbound></policies>"
    first = policy_xml.read(text, "xml", "policies").text
    assert policy_xml.read(first, "xml", "policies").text == first
    names = [s.attributes["name"] for s in policy_xml.read(first, "xml", "policies").statements]
    assert [name.split() for name in names] == [value.split() for value in values]


@pytest.mark.parametrize(
    "expression",
    ['@(a("x", \'"\') > 1)', '@{ return "}" + b["k"]; }', '@(x ? "a\\"b" : \'c\')', '@("&amp;" + 1)'],
)
def test_expressions_end_where_their_bracket_closes(expression):
    text = policy_xml.escape_expressions(f'<a b="{expression}" c="1" />')
    element = ET.fromstring(text)
    assert element.attrib["c"] == "1"
