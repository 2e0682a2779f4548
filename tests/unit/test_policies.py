"""The gateway's policies as texts: one canonical form, strict placeholders, and rules that bite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from components.gateway import policies
from components.gateway.entities import Entity, KeyParameter
from components.gateway.policies import PolicyError, canonical, fill
from components.gateway.policy_rules import SECTIONS, violations
from huddle.wrapper import auth
from huddle.wrapper.config import TimeoutsConfig
from huddle.wrapper.errors import ErrorType
from infra.plan import ProductPlan
from simulator.rules import policy_xml

AZURE_CUTS_SILENCE_S = 240
PRODUCT = ProductPlan(
    id="developers",
    display_name="Developers",
    description="",
    models=("llama-3.2-3b",),
    system_prompt=None,
    requests_per_minute=61,
    tokens_per_minute=20_001,
    approval_required=False,
    published=True,
    subscriptions=(),
)
TEXTS = {"api": policies.api_policy(), "product": policies.product_policy(PRODUCT)}
EMPTY = "<policies><inbound>{}<base /></inbound><backend><base /></backend><outbound><base /></outbound><on-error><base /></on-error></policies>"  # noqa: E501


@pytest.fixture(params=sorted(TEXTS))
def text(request: pytest.FixtureRequest) -> str:
    return TEXTS[request.param]


def api(section: str) -> Element:
    found = ElementTree.fromstring(TEXTS["api"]).find(section)
    assert found is not None
    return found


def headers(parent: Element) -> dict[str, tuple[str, str | None]]:
    """Name, action and value of the headers that an element sets itself, unconditionally."""
    return {
        header.attrib["name"]: (header.attrib["exists-action"], header.findtext("value"))
        for header in parent.findall("set-header")
    }


def tags(parent: Element) -> list[str]:
    return [child.tag for child in parent]


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
    except ElementTree.ParseError:
        return
    assert edited != text


@given(calls=st.integers(1, 10**6), tokens=st.integers(1, 10**9))
def test_a_limit_is_all_that_changes_with_a_limit(calls: int, tokens: int) -> None:
    template = (files("components.gateway") / "policies" / "product.xml").read_text()
    expected = (
        canonical(template).replace("$requests_per_minute", str(calls)).replace("$tokens_per_minute", str(tokens))
    )
    assert policies.render("product.xml", requests_per_minute=calls, tokens_per_minute=tokens) == expected


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


# --- Rules that hold for every policy


def test_our_policies_break_no_rule(text: str) -> None:
    assert violations(text) == []


FORWARD = '<forward-request timeout="200" follow-redirects="false" buffer-request-body="true" buffer-response="false" fail-on-error-status-code="false" />'  # noqa: E501
BROKEN = {
    "buffers responses": (' buffer-response="false"', ' buffer-response="true"', "lumps"),
    "does not say whether it buffers": (' buffer-response="false"', "", "lumps"),
    "waits for longer than Azure": ('timeout="200"', 'timeout="240"', "timeout '240'; allowed: 1-239"),
    "does not wait at all": ('timeout="200"', 'timeout="0"', "timeout"),
    "does not say how long it waits": (' timeout="200"', "", "timeout ''"),
    "computes how long it waits": ('timeout="200"', 'timeout="@(900)"', "timeout"),
    "follows redirects": ('follow-redirects="false"', 'follow-redirects="true"', "redirects"),
    "sends twice": (FORWARD, f"{FORWARD}</retry><base /><retry>", "sent twice"),
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
        "X-Huddle-Tenant.*None",
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
        "    <base />\n    <set-backend-service",
        "    <set-backend-service",
        "inbound.*base",
    ),
    "skips outer errors": ("<on-error>\n    <base />", "<on-error>", "on-error.*base"),
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
    broken = TEXTS["api"].replace(old, new, 1)
    assert broken != TEXTS["api"], f"the API's policy no longer holds {old!r}"
    if name == "lacks a section":
        broken = broken.replace("</outbound>", "</outbond>")
    assert any(re.search(complaint, sentence) for sentence in violations(broken)), violations(broken)


def test_a_header_for_consumed_tokens_is_refused() -> None:
    broken = TEXTS["product"].replace("estimate-prompt", 'tokens-consumed-header-name="x" estimate-prompt')
    assert any("stream in a header" in sentence for sentence in violations(broken))


def test_what_is_not_xml_is_told_by_line_and_column() -> None:
    assert violations("<policies>\n  <inbound>\n</policies>") == [
        "line 3, column 3: is not well-formed XML (mismatched tag: line 3, column 2)"
    ]
    assert any("outermost element is <policies>" in sentence for sentence in violations("<policy />"))


def test_sections_stand_exactly_once() -> None:
    assert any(
        "<outbound> stands 0 times" in sentence
        for sentence in violations(TEXTS["api"].split("<outbound>")[0] + "<on-error><base /></on-error></policies>")
    )
    twice = EMPTY.format("").replace("</policies>", "<outbound><base /></outbound></policies>")
    assert any("<outbound> stands 2 times" in sentence for sentence in violations(twice))


# --- What the API's policy does


def test_a_key_of_no_product_is_refused_before_anything_else() -> None:
    inbound = api("inbound")
    assert tags(inbound)[:2] == ["choose", "base"]
    (when,) = inbound[0]
    assert when.attrib == {"condition": "@(context.Product == null)"}
    (answer,) = when
    assert answer.tag == "return-response"
    status = answer.find("set-status")
    assert status is not None
    assert status.get("code") == "403"


def test_no_credential_of_a_client_goes_further() -> None:
    inbound = api("inbound")
    deleted = {name for name, (action, _) in headers(inbound).items() if action == "delete"}
    assert deleted == {KeyParameter.HEADER.value, "api-key", "Authorization"}
    query = inbound.find("set-query-parameter")
    assert query is not None
    assert query.attrib == {"name": KeyParameter.QUERY.value, "exists-action": "delete"}
    assert tags(api("backend")) == ["retry"]  # nothing is put back before it is sent


def test_the_wrapper_gets_the_headers_that_it_believes_and_only_from_us() -> None:
    believed = {name: value for name, (action, value) in headers(api("inbound")).items() if action == "override"}
    assert believed == {
        "X-Backend-Key": f"{{{{{Entity.BACKEND_KEY}}}}}",
        "X-Huddle-Product": "@(context.Product.Id)",
        "X-Huddle-Tenant": "@(context.Subscription.Id)",
        "X-Request-Id": "@(context.RequestId.ToString())",
    }
    assert {name.lower().encode() for name in believed} >= {
        auth.BACKEND_KEY_HEADER,
        auth.PRODUCT_HEADER,
        auth.TENANT_HEADER,
    }
    inbound = tags(api("inbound"))
    assert inbound.index("base") < inbound.index("set-header"), "a product's policy must not have the last word"


def test_the_backend_key_is_used_in_one_place() -> None:
    assert re.findall(r"{{[^}]*}}", TEXTS["api"] + TEXTS["product"]) == ["{{backend-key}}"]


def test_requests_go_to_the_pool() -> None:
    (backend,) = api("inbound").findall("set-backend-service")
    assert backend.attrib == {"backend-id": Entity.POOL.value}


def test_only_what_has_not_begun_is_tried_once_more() -> None:
    (retry,) = api("backend")
    assert tags(retry) == ["forward-request"]
    assert retry.get("count") == "1"
    assert retry.get("first-fast-retry") == "true"
    assert set(re.findall(r"== (\d+)", retry.attrib["condition"])) == {"429", "503"}
    assert retry[0].get("buffer-request-body") == "true", "a retry needs the request once more"


def test_both_tries_together_end_before_azure_cuts_the_silence() -> None:
    timeout = int(api("backend")[0][0].attrib["timeout"])
    assert TimeoutsConfig().queue_s + timeout < AZURE_CUTS_SILENCE_S


def answers() -> Iterator[Element]:
    yield from ElementTree.fromstring(TEXTS["api"]).iter("return-response")


def error(answer: Element) -> tuple[int, dict[str, str | None]]:
    status = answer.find("set-status")
    assert status is not None
    body = json.loads(answer.findtext("set-body") or "")
    assert set(body) == {"error"}
    return int(status.attrib["code"]), body["error"]


def test_errors_look_as_openais_clients_expect() -> None:
    found = [error(answer) for answer in answers()]
    assert [status for status, _ in found] == [403, 401, 403, 404, 429, 400, 503]
    for _, body in found:
        assert list(body) == ["message", "type", "param", "code"]
        assert body["type"] in set(ErrorType)
        assert body["message"]
        assert body["param"] is None
    for answer in answers():
        assert headers(answer)["Content-Type"] == ("override", "application/json")
        assert headers(answer)["X-Request-Id"] == ("override", "@(context.RequestId.ToString())")


def test_who_may_try_again_learns_when() -> None:
    assert {error(answer)[0] for answer in answers() if "Retry-After" in headers(answer)} == {429, 503}


def test_every_failure_of_the_gateway_has_an_answer() -> None:
    (_, choose) = api("on-error")
    conditions = [branch.get("condition") for branch in choose]
    exact = [f"@(context.Response.StatusCode == {status})" for status in (401, 403, 404, 429)]
    assert conditions == [*exact, "@(context.Response.StatusCode / 100 == 4)", None]
    assert choose[-1].tag == "otherwise"
    for branch, status in zip(choose, (401, 403, 404, 429, 400, 503), strict=True):
        assert error(branch[0])[0] == status


def test_no_answer_names_a_node() -> None:
    for answer in answers():
        assert not re.search(r"\d+\.\d+\.\d+|LastError|azure|http:", ElementTree.tostring(answer, encoding="unicode"))


def test_every_answer_can_be_found_in_the_logs() -> None:
    assert headers(api("outbound")) == {"X-Request-Id": ("override", "@(context.RequestId.ToString())")}


# --- What a product's policy does


def test_a_products_limits_are_the_plans_and_count_for_each_subscription() -> None:
    inbound = ElementTree.fromstring(TEXTS["product"]).find("inbound")
    assert inbound is not None
    calls, tokens = inbound.find("rate-limit-by-key"), inbound.find("choose/when/llm-token-limit")
    assert calls is not None
    assert tokens is not None
    assert (calls.get("calls"), calls.get("renewal-period")) == ("61", "60")
    assert tokens.get("tokens-per-minute") == "20001"
    assert tokens.get("estimate-prompt-tokens") == "true"
    assert {limit.get("counter-key") for limit in (calls, tokens)} == {"@(context.Subscription.Id)"}
    assert inbound.find("choose/when[@condition='@(context.Request.Body != null)']") is not None
