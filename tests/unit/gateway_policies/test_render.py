"""The gateway's policies as texts: one canonical form, strict placeholders, and rules that bite."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from lxml import etree
from openai import OpenAI

from gateway_policies import render as policies
from gateway_policies.entities import Entity, KeyParameter
from gateway_policies.fragments import OWN_HEADERS
from gateway_policies.render import PolicyError, canonical, fill
from gateway_policies.rules import SECTIONS
from gateway_policies.source import PolicyFault
from huddle.headers import PROMPT_HASH_HEADER
from huddle.wrapper.config import TimeoutsConfig
from simulator.azure.rules.apim import policy_xml
from tests.unit.builders import plan

AZURE_CUTS_SILENCE_S = 240
BROWSERS_OWN = {"accept", "authorization", "user-agent"}
GATEWAY = plan(
    "dev",
    gateway={
        "cors_origins": ["https://a.example.com", "https://b.example.com:8443"],
        "products": {
            "developers": {
                "display_name": "Developers",
                "requests_per_minute": 61,
                "tokens_per_minute": 20_001,
                "token_quota": {"tokens": 1_000_000, "period": "monthly"},
            }
        },
    },
).gateway
PRODUCT = GATEWAY.products[0]
TEXTS = {"api": policies.api_policy(GATEWAY), "product": policies.product_policy(PRODUCT)}
EMPTY = "<policies><inbound>{}<base /></inbound><backend><base /></backend><outbound><base /></outbound><on-error><base /></on-error></policies>"  # noqa: E501


@pytest.fixture(params=sorted(TEXTS))
def text(request: pytest.FixtureRequest) -> str:
    return TEXTS[request.param]


# --- The canonical form


def test_the_text_is_its_own_canonical_form(text: str) -> None:
    assert canonical(text) == text


def test_every_line_is_indented_by_its_depth_and_has_no_trailing_blank(text: str) -> None:
    assert "\r" not in text
    assert not text.endswith("\n")
    depth = 0
    for line in text.split("\n"):
        assert line == line.rstrip()
        content = line.lstrip(" ")
        if content.startswith("</"):
            depth -= 1
        assert len(line) - len(content) == 2 * depth, line
        opens = content.startswith("<") and not content.startswith(("</", "<!--"))
        if opens and not content.endswith("/>") and "</" not in content:
            depth += 1
    assert depth == 0


def test_xml_and_rawxml_read_the_text_alike(text: str) -> None:
    assert not re.search(r"&(?!lt;|gt;|amp;)", text)
    for element in ElementTree.fromstring(text).iter():
        for value in (*element.attrib.values(), element.text or ""):
            if "@(" in value:
                assert not re.search(r"[<>&]", value)
        for value in element.attrib.values():
            assert '"' not in value


def test_the_simulated_service_reads_the_text_alike_in_both_formats(text: str) -> None:
    raw = policy_xml.read(text, "rawxml", "policies")
    assert raw == policy_xml.read(text, "xml", "policies")
    assert len(raw.statements) == sum(1 for _ in ElementTree.fromstring(text).iter()) - 1 - len(SECTIONS)


@given(st.data())
def test_the_layout_of_a_file_changes_nothing(data: st.DataObject) -> None:
    text = TEXTS[data.draw(st.sampled_from(sorted(TEXTS)))]
    blanks = st.text(alphabet=" \t", max_size=5)
    lines = [f"{data.draw(blanks)}{line.strip()}{data.draw(blanks)}" for line in text.split("\n")]
    assert canonical(data.draw(st.sampled_from(["\n", "\r\n", "\n\n"])).join(lines)) == text


def test_blanks_around_a_value_are_layout(text: str) -> None:
    assert canonical(re.sub(r"<value>(.*?)</value>", r"<value>\n\t\1\n</value>", text)) == text


@given(st.data())
def test_an_edit_of_one_character_is_an_edit_of_the_text_or_an_error(data: st.DataObject) -> None:
    text = TEXTS[data.draw(st.sampled_from(sorted(TEXTS)))]
    places = [index for index, char in enumerate(text) if char.isalnum()]
    at = data.draw(st.sampled_from(places))
    assume(text[at] != "Z")
    try:
        edited = canonical(f"{text[:at]}Z{text[at + 1 :]}")
    except PolicyFault:
        return
    assert edited != text


@given(calls=st.integers(1, 10**6), tokens=st.integers(1, 10**9))
def test_a_limit_is_all_that_changes_with_a_limit(calls: int, tokens: int) -> None:
    changed = policies.product_policy(replace(PRODUCT, requests_per_minute=calls, tokens_per_minute=tokens))
    expected = (
        TEXTS["product"].replace('calls="61"', f'calls="{calls}"').replace('minute="20001"', f'minute="{tokens}"')
    )
    assert changed == expected


def test_without_a_quota_nothing_speaks_of_one() -> None:
    assert 'token-quota="1000000" token-quota-period="Monthly"' in TEXTS["product"]
    assert "uota" not in policies.product_policy(replace(PRODUCT, token_quota=None))


def test_without_origins_nothing_speaks_of_cors() -> None:
    assert re.findall("<origin>(.*)</origin>", TEXTS["api"]) == list(GATEWAY.cors_origins)
    without = policies.api_policy(replace(GATEWAY, cors_origins=()))
    assert "cors" not in without
    assert "part" not in [element.tag for element in ElementTree.fromstring(without).iter()]


# --- Placeholders


def test_a_placeholder_without_a_value_and_a_value_without_a_placeholder_are_errors() -> None:
    document = EMPTY.format('<set-backend-service backend-id="$pool" />')
    assert 'backend-id="nodes"' in fill(document, "x.xml", {"pool": "nodes"})
    with pytest.raises(PolicyError, match=r"x\.xml: placeholders are \['pool'\], values are \[\]"):
        fill(document, "x.xml", {})
    with pytest.raises(PolicyError, match=r"values are \['pool', 'port'\]"):
        fill(document, "x.xml", {"pool": "nodes", "port": 1})
    with pytest.raises(PolicyError, match="placeholders"):
        fill(EMPTY.format('<set-backend-service backend-id="$" />'), "x.xml", {})


@given(st.text(alphabet="<>&\"'`$[]ab é→;"))
def test_a_value_stays_a_value(value: str) -> None:
    document = EMPTY.format('<set-backend-service backend-id="$pool" />')
    found = ElementTree.fromstring(fill(document, "x.xml", {"pool": value})).find("inbound/set-backend-service")
    assert found is not None
    assert found.get("backend-id") == value


@pytest.mark.parametrize("value", ["@(context.Secret)", "@{return 1;}", "{{backend-key}}", "a {{b}}"])
def test_a_value_that_would_be_evaluated_is_refused(value: str) -> None:
    with pytest.raises(PolicyError, match="evaluated"):
        fill(EMPTY.format('<set-backend-service backend-id="$pool" />'), "x.xml", {"pool": value})


def test_a_file_that_breaks_a_rule_is_never_rendered() -> None:
    with pytest.raises(PolicyError, match="validate-content"):
        fill(EMPTY.format("<validate-content />"), "x.xml", {})


def test_parts_are_elements_in_the_place_of_a_placeholder() -> None:
    document = EMPTY.format('<part name="own" />')
    elements = [etree.fromstring(f'<set-header name="{name}" exists-action="delete" />') for name in "ab"]
    found = ElementTree.fromstring(fill(document, "x.xml", {}, {"own": elements})).findall("inbound/*")
    assert [element.get("name") for element in found] == ["a", "b", None]
    assert "part" not in fill(document, "x.xml", {}, {"own": []})
    with pytest.raises(PolicyError, match=r"placeholders are \['own'\], values are \[\]"):
        fill(document, "x.xml", {})


# --- What the lab (tests/simulator/apim_policies) cannot show


def test_the_headers_that_the_wrapper_believes_have_its_names() -> None:
    names = re.findall(r'set-header name="([^"]+)" exists-action="override"', TEXTS["api"].split("<backend>")[0])
    assert {name.lower() for name in names} == {*OWN_HEADERS, "content-type"}


def test_keys_are_stripped_from_where_the_api_takes_them() -> None:
    request, answer = TEXTS["api"].split("<outbound>")
    deleted = set(re.findall(r'name="([^"]+)" exists-action="delete"', request))
    assert deleted == {*KeyParameter, "api-key", "Authorization"}
    assert re.findall(r'name="([^"]+)" exists-action="delete"', answer.lower()) == [PROMPT_HASH_HEADER]


def test_the_backend_key_is_used_in_one_place() -> None:
    assert re.findall(r"{{[^}]*}}", TEXTS["api"] + TEXTS["product"]) == [f"{{{{{Entity.BACKEND_KEY}}}}}"]


def test_both_tries_together_end_before_azure_cuts_the_silence() -> None:
    (timeout,) = re.findall(r'<forward-request timeout="(\d+)"', TEXTS["api"])
    assert TimeoutsConfig().queue_s + int(timeout) < AZURE_CUTS_SILENCE_S


def test_no_answer_names_a_node() -> None:
    for answer in ElementTree.fromstring(TEXTS["api"]).iter("return-response"):
        assert not re.search(r"\d+\.\d+\.\d+|LastError|azure|http:", ElementTree.tostring(answer, encoding="unicode"))


def test_browsers_may_send_what_the_sdk_sends() -> None:
    allowed = {name.lower() for name in re.findall("<header>(.*)</header>", TEXTS["api"])}
    sent = OpenAI(api_key="x", base_url="https://gateway.example.com/v1").default_headers
    assert {name.lower() for name, value in sent.items() if isinstance(value, str)} - BROWSERS_OWN <= allowed
