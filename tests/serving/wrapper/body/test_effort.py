"""Time has owners: a body that would hold the interpreter is refused, or read beside the loop (F16)."""

import json
import random
import re

import pytest

from huddle.wrapper.body.effort import INLINE_NS, MOST_NS, Signs, prepared_at_once
from huddle.wrapper.body.strictjson import parse_object
from huddle.wrapper.errors import RequestError
from tests.serving.wrapper.conftest import Wrapper


def listed(values: str, count: int, before: str = "[", after: str = "]") -> bytes:
    inner = ",".join(values.replace("#", str(i)) for i in range(count))
    return f'{{"messages":[{{"role":"user","content":"hi"}}],"x":{before}{inner}{after}}}'.encode()


WIDE = {
    "600,000 keys": lambda: listed('"#":1', 600_000, "{", "}"),
    "999,000 decimals": lambda: listed("0.#", 999_000),
    "999,000 whole numbers": lambda: listed("#", 999_000),
    "exponents": lambda: listed("1e5", 400_000),
    "86,000 objects": lambda: listed("{}", 86_000),
    "86,000 lists": lambda: listed("[]", 86_000),
    "two million empty texts": lambda: listed('""', 2_000_000),
    "numbers of 4,200 digits": lambda: listed("1" * 4_200, 1_900),
}
FINE = {
    "250,000 token ids": lambda: listed("#", 250_000),
    "1,000 texts of 500 token ids": lambda: json.dumps({"input": [list(range(120_000, 120_500))] * 1_000}).encode(),
    "8 MB of commas in a text": lambda: json.dumps({"a": "a, b.c: {[ " * 700_000}).encode(),
    "8 MB of quotes in a text": lambda: json.dumps({"a": 'say "yes" \\ or ' * 400_000}).encode(),
    "a picture": lambda: json.dumps({"a": "data:image/png;base64," + "iVBORw0KGgo=" * 600_000}).encode(),
    "digits in a text": lambda: json.dumps({"a": "1" * 1_000_000}).encode(),
    "5,000 messages": lambda: listed('{"role":"user","content":"hello, you"}', 5_000),
}


@pytest.mark.parametrize("case", WIDE)
def test_f16_what_would_hold_the_interpreter_is_refused(case: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_object(Signs(WIDE[case]()), 64)
    assert refused.value.status in (400, 413)


@pytest.mark.parametrize("case", FINE)
def test_f16_what_real_clients_send_is_not(case: str) -> None:
    assert parse_object(Signs(FINE[case]()), 64)
    assert Signs(FINE[case]()).effort_ns < MOST_NS


@pytest.mark.anyio
@pytest.mark.parametrize(("values", "inline"), [(10, True), (20_000, False)])
async def test_f16_many_values_are_prepared_beside_the_loop_whatever_their_bytes(
    wrapper: Wrapper, values: int, inline: bool
) -> None:
    body = listed('"#"', values)
    assert len(body) < 256 * 1024
    assert prepared_at_once(body) == inline
    answer = await wrapper.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert wrapper.service.workbench.helper.runs == (not inline)


@pytest.mark.parametrize(
    ("key", "most"), [("regex", 8_192), ("pattern", 8_192), ('"grammar"', 1_024), ("\\u0070attern", 1_024)]
)
def test_long_expressions_are_judged_beside_the_loop(key: str, most: int) -> None:
    """However their names are written."""
    body = b'{"structured_outputs":{"' + key.strip('"').encode() + b'":"' + b"[a-z]x" * 5_000 + b'"}}'
    assert Signs(body).effort_ns < MOST_NS
    assert not prepared_at_once(body)
    assert not prepared_at_once(body[: most + 1])
    assert prepared_at_once(body[:most])


@pytest.mark.parametrize("written", ["{}", "[]", "\\u007b\\u007D", '\\"a\\":0'])
def test_schemas_in_texts_are_read_beside_the_loop(written: str) -> None:
    text = ",".join([written] * 12_000)
    body = b'{"structured_outputs":{"a":[{"json":"{\\"x\\":[' + text.encode() + b']}"}]}}'
    assert not prepared_at_once(body)


def test_prose_is_read_at_once() -> None:
    prose = "Once upon a time, there was a model: it read (and wrote) all day long. " * 1_500
    assert prepared_at_once(json.dumps({"messages": [{"role": "user", "content": prose}]}).encode())


def test_effort_sees_through_escapes() -> None:
    """What stands in a text is text, however its quotes and backslashes are escaped."""
    draw = random.Random(5)
    plain = Signs(json.dumps({"a": "a", "b": [0] * 5_000}).encode()).effort_ns
    for _ in range(50):
        text = "".join(draw.choice('a"\\,:{[.') for _ in range(20_000))
        body = json.dumps({"a": text, "b": [0] * 5_000}).encode()
        assert Signs(body).effort_ns < plain + 500_000


def test_signs_are_those_of_the_body() -> None:
    """Nothing is lost, and nothing that is left out brings together what was apart."""
    draw = random.Random(7)
    for _ in range(300):
        body = "".join(draw.choices('ab ,:{["\\u05bé1.eE\n', k=draw.randrange(400))).encode()
        signs = Signs(body)
        assert signs.openings == body.count(b"{") + body.count(b"[")
        assert signs.escapes == (body.count(rb"\u00"), body.count(rb"\u005") + body.count(rb"\u007"))
        assert signs.holds_digits(3) == bool(re.search(rb"[0-9]{3}", body))


@pytest.mark.parametrize("filling", [b"{", b"[", b",", b":", b".", b'"', rb"\u005b", b'{"":[0.e,'])
def test_what_is_prepared_at_once_unseen_could_not_take_longer(filling: bytes) -> None:
    for size in (1_024, 2_000):
        body = filling * (size // len(filling))
        signs = Signs(body)
        at_once = signs.effort_ns <= INLINE_NS and signs.most_ns_in_texts <= INLINE_NS
        assert at_once
        assert prepared_at_once(body) == (not signs.escapes[0] or len(body) <= 1_024)


def test_what_could_take_longer_is_counted() -> None:
    assert not prepared_at_once(b"{" * (INLINE_NS // 2_000 + 1))
