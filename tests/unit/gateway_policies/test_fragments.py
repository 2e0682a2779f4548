"""An operator's own policy elements: what may be added is added, what buffers, leaks or bypasses is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway_policies import render as policies
from gateway_policies.fragments import ALLOWED, fragment_faults
from huddle.errors import InputError
from infra.program import plan_of
from plan import stack_file
from tests.unit.gateway_policies.wrong_policies import WRONG
from tests.unit.stack_values import changed

GOOD = """
<fragment>
  <ip-filter action="allow">
    <address-range from="203.0.113.0" to="203.0.113.255" />
  </ip-filter>
  <set-header name="X-Team" exists-action="override"><value>@(context.Subscription.Id)</value></set-header>
</fragment>
"""
HEADER = '<set-header name="X-A" exists-action="override"><value>{}</value></set-header>'
REFUSED = {
    "buffers": ("<validate-content />", "<validate-content> reads or keeps a body"),
    "buffers in a choice": (
        '<choose><when condition="@(true)"><find-and-replace /></when></choose>',
        "find-and-replace",
    ),
    "rewrites bodies": ("<set-body>x</set-body>", "<set-body> outside <return-response>"),
    "reads bodies": (HEADER.format("@(context.Request.Body.As(0))"), "reads a body"),
    "sends elsewhere": ("<send-request />", "<send-request> sends parts of a request elsewhere"),
    "fetches credentials": ("<authentication-managed-identity />", "fetches credentials"),
    "goes elsewhere": ('<set-backend-service base-url="https://x" />', "decides where requests go"),
    "forwards": ("<forward-request />", "decides where requests go"),
    "hides elements": ('<include-fragment fragment-id="x" />', "decides where requests go"),
    "opens CORS": ("<cors />", "decides where requests go"),
    "is not known": ("<teleport />", "<teleport> is not allowed in a fragment for inbound; allowed: address,"),
    "sets our headers": ('<set-header name="x-HUDDLE-product" exists-action="delete" />', "set by the program"),
    "sets keys": ('<set-header name="api-key" exists-action="delete" />', "set by the program"),
    "keeps clients' headers": ('<set-header name="X-A" exists-action="skip" />', "exists-action 'skip'"),
    "uses named values": (HEADER.format("{{backend-key}}"), "named values hold secrets"),
    "shows keys": (HEADER.format("@(context.Subscription.PrimaryKey)"), "could show a client's key"),
    "shows sent keys": (
        HEADER.format('@(context.Request.Headers.GetValueOrDefault("OCP-apim-subscription-key", ""))'),
        "could show a client's key",
    ),
    "shows queries": (HEADER.format("@(context.Request.OriginalUrl.ToString())"), "could show a client's key"),
    "puts a key's header together": (
        HEADER.format('@(context.Request.Headers.GetValueOrDefault("Ocp-Apim-" + "Subscription-Key", ""))'),
        "reads headers whose names can't be told",
    ),
    "shows all headers": (HEADER.format("@(context.Request.Headers.ToString())"), "whose names can't be told"),
    "sets our headers, with a blank": (
        '<set-header name="X-Backend-Key " exists-action="delete" />',
        "set by the program",
    ),
    "has a namespace": ('<ip-filter xmlns="urn:x" />', "uses an XML namespace"),
    "has a prefix": ("<a:forward-request />", "uses an XML namespace"),
    "has an attribute with a prefix": ('<ip-filter a:x="1" />', "uses an XML namespace"),
    "is nested without end": ("<choose>" * 3_000 + "</choose>" * 3_000, "is nested too deeply; allowed: 64"),
    "has statements": (HEADER.format("@{ return 1; }"), "several statements"),
}


def faults(inside: str, section: str = "inbound") -> list[str]:
    return [str(fault) for fault in fragment_faults(f"<fragment>\n  {inside}\n</fragment>", section, "own.xml")]


def test_checks_and_headers_are_allowed() -> None:
    assert fragment_faults(GOOD, "inbound", "own.xml") == []


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_a_fragment_is_refused_that(what: str) -> None:
    inside, complaint = REFUSED[what]
    found = faults(inside)
    assert any(complaint in sentence for sentence in found), found
    assert all(sentence.startswith("own.xml, line 2, column ") for sentence in found)


def test_what_checks_requests_has_no_place_among_answers() -> None:
    assert any("not allowed in a fragment for outbound" in sentence for sentence in faults("<ip-filter />", "outbound"))
    assert faults(HEADER.format("b"), "outbound") == []


def test_a_fragment_is_one_element_with_elements() -> None:
    for text in ("<policies />", "<fragment />", "<fragment>text</fragment>", '<fragment a="b"><choose /></fragment>'):
        assert fragment_faults(text, "inbound", "own.xml"), text
    assert "bytes; allowed: up to" in str(fragment_faults(f"<fragment>{' ' * 65_537}</fragment>", "inbound", "x")[0])


@pytest.mark.parametrize("what", WRONG)
def test_what_api_management_refuses_is_refused_here(what: str) -> None:
    """Its own sentence, unless no fragment may hold that element anyway."""
    policy, words = WRONG[what]
    found = faults(policy)
    tag = policy[1:].split()[0].split(">")[0]
    assert any(words in sentence for sentence in found) or tag not in ALLOWED["inbound"] or "not allowed" in str(found)


@pytest.mark.parametrize(
    "begin",
    [
        '<!DOCTYPE fragment [<!ATTLIST choose a CDATA "b">]>',
        '<!DOCTYPE fragment [<!ENTITY a "<forward-request />">]>',
        '<!DOCTYPE fragment SYSTEM "file:///etc/hostname">',
    ],
)
def test_a_document_type_which_could_hide_elements_is_refused(begin: str) -> None:
    found = fragment_faults(f"{begin}<fragment><choose /></fragment>", "inbound", "own.xml")
    assert "has a document type" in str(found[0])


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "big5", "klingon"])
def test_what_a_declaration_says_of_the_encoding_does_not_matter(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>' + GOOD.strip()
    assert fragment_faults(text, "inbound", "own.xml") == []
    assert policies.canonical(text) == policies.canonical(GOOD)


def test_attributes_have_places_whatever_their_letters_are() -> None:
    assert faults('<set-header größe="1" name="x-request-id" exists-action="delete" />')


def test_too_large_a_file_is_not_even_read() -> None:
    found = fragment_faults("<oops" * 100_000, "inbound", "own.xml")
    assert [fault.sentence for fault in found] == ["has 500000 bytes; allowed: up to 65536"]


# --- From a stack file


def built(root: Path, **fragments: Any) -> Any:
    settings = stack_file.from_values(changed(gateway={"policy_fragments": fragments}), "dev")
    return plan_of(settings, "dev", root)


def test_a_fragment_becomes_a_part_of_the_apis_policy(tmp_path: Path) -> None:
    (tmp_path / "in.xml").write_text(GOOD)
    (tmp_path / "out.xml").write_text(f"<fragment>{HEADER.format('b')}</fragment>")
    text = policies.api_policy(built(tmp_path, inbound=["in.xml"], outbound=["out.xml"]).gateway)
    assert "fragment" not in text
    inbound, outbound = text.split("<backend>")[0], text.split("<outbound>")[1].split("</outbound>")[0]
    assert inbound.index("<base />") < inbound.index("<ip-filter") < inbound.index('name="X-Backend-Key"')
    assert 'name="X-A"' in outbound
    assert outbound.index('name="X-A"') < outbound.index('name="X-Request-Id"')


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<fragment>\n<oops</fragment>", "own.xml, line 2, column 6: is not well-formed XML (error parsing attr"),
        (
            '<fragment>\n <rate-limit-by-key counter-key="a" calls="1" period="60" /></fragment>',
            "own.xml, line 2, column 2: <rate-limit-by-key> lacks the required attribute 'renewal-period'",
        ),
        ("<fragment>\n <validate-content /></fragment>", "own.xml, line 2, column 2: <validate-content> reads or"),
    ],
)
def test_a_bad_file_is_one_sentence_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "own.xml").write_text(text)
    with pytest.raises(InputError) as caught:
        built(tmp_path, inbound=["own.xml"])
    assert str(caught.value.faults[0]).startswith(sentence)


def test_files_outside_of_the_project_and_missing_ones_are_refused(tmp_path: Path) -> None:
    for name, reason in (
        ("../x.xml", "outside of the project"),
        ("x.xml", "No such file"),
        ("a\0b", "is not allowed; allowed: a file's name"),
        ("", "Is a directory"),
    ):
        with pytest.raises(InputError, match=reason) as caught:
            built(tmp_path, outbound=[name])
        assert caught.value.faults[0].key == "gateway.policy_fragments.outbound"


def test_a_file_or_an_origin_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own.xml").write_text(GOOD)
    with pytest.raises(InputError, match=r"policy_fragments\.inbound: 'own\.xml' occurs 2 times"):
        built(tmp_path, inbound=["own.xml", "own.xml"])


@pytest.mark.parametrize("origin", ["*", "https://a.example.com/", "a.example.com", "https://A.example.com", "ftp://a"])
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(InputError, match=r"gateway\.cors_origins.*such as https:"):
        stack_file.from_values(changed(gateway={"cors_origins": [origin]}), "dev")
