"""The usual answers pass as they came, in any pieces; what does not belong there does not pass."""

import pytest

from huddle.wrapper.engine import answers, usage
from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.usage import StreamMeter, VectorsMeter
from huddle.wrapper.errors import RequestError
from huddle.wrapper.routes import Route
from tests.serving.wrapper.engine.hostile_answers import ENGINE_KEY, PROMPTS, SALT
from tests.serving.wrapper.leaks import leaked


def usual(choice: str, identity: str = "chatcmpl-1", model: str = "tiny") -> bytes:
    """An event as engines write it."""
    start = f'"id":"{identity}","object":"chat.completion.chunk","created":1795000000,"model":"{model}"'
    return f'data: {{{start},"choices":[{{"index":0,{choice}}}]}}\n\n'.encode()


FIRST = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
LAST = '"delta":{"content":" end"},"logprobs":null,"finish_reason":"stop","stop_reason":null'


def streamed(events: list[bytes], route: Route = Route.CHAT, *, tell: bool = False) -> bytes:
    judge = Judge(route, "", (*PROMPTS.values(), SALT, ENGINE_KEY))
    meter = StreamMeter(judge, hide=True, tell=tell, error=lambda _: b"ours")
    return b"".join(map(meter.feed, events)) + meter.rest()


def test_the_usual_events_pass_as_they_came() -> None:
    events = [usual(FIRST), usual('"delta":{"content":" word"},"finish_reason":null'), usual(LAST)]
    assert streamed(events) == b"".join(events)


WORD = usual('"delta":{"content":" word"},"finish_reason":null')
COUNTS = '"usage":{"prompt_tokens":3,"total_tokens":5,"completion_tokens":2}'
USAGE_EVENT = usual("").replace(b'[{"index":0,}]}', f"[],{COUNTS}}}".encode())
END = b"data: [DONE]\n\n"


def ending(index: int = 0, *, usage: bool = False) -> bytes:
    event = usual(LAST).replace(b'"index":0', b'"index":%d' % index)
    return event.replace(b"}]}", f"}}],{COUNTS}}}".encode()) if usage else event


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_usage_is_told_in_the_event_that_ends_the_last_choice(size: int) -> None:
    """A client that did not ask for it meets no event without choices, and none that it would not have got."""
    stream = usual(FIRST) + WORD + ending(1) + WORD + ending() + USAGE_EVENT + END
    cut = [stream[i : i + size] for i in range(0, len(stream), size)]
    assert streamed(cut, tell=True) == usual(FIRST) + WORD + ending(1) + WORD + ending(usage=True) + END
    assert streamed(cut) == stream.replace(USAGE_EVENT, b"")


@pytest.mark.parametrize("after", [END, b"", b"data: {not json\n\n", WORD], ids=["done", "end", "error", "word"])
def test_an_ended_choice_is_told_also_when_no_usage_follows(after: bytes) -> None:
    assert streamed([usual(FIRST), ending(), after], tell=True) == usual(FIRST) + ending() + after.replace(
        b"data: {not json\n\n", b"ours"
    )


def test_an_ended_choice_comes_before_the_error_for_an_event_without_end() -> None:
    endless = b"data: " + b"x" * (usage._EVENT_MAX + 1)
    assert (
        streamed([usual(FIRST), ending(), endless, b"\n\n", END], tell=True) == usual(FIRST) + ending() + b"ours" + END
    )


def test_what_is_held_is_told() -> None:
    meter = StreamMeter(Judge(Route.CHAT), hide=True, tell=True, error=lambda _: b"ours")
    meter.feed(ending() + b"data: ")
    assert meter.size == len(ending()) - len(b"data:\n\n") + len(b"data: ")
    meter.feed(b"[DONE]\n\n")
    assert meter.size == 0


def test_usage_without_an_ended_choice_stays_hidden() -> None:
    assert streamed([usual(FIRST), WORD, USAGE_EVENT, END], tell=True) == usual(FIRST) + WORD + END


def test_pieces_are_counted_however_they_come() -> None:
    stream = usual(FIRST) + WORD * 5 + ending() + USAGE_EVENT + END
    for tell in (False, True):
        for size in (1, 100, 10_000):
            meter = StreamMeter(Judge(Route.CHAT), hide=True, tell=tell, error=lambda _: b"ours")
            [meter.feed(stream[i : i + size]) for i in range(0, len(stream), size)]
            assert meter.pieces == 7


def test_a_read_that_cuts_an_event_does_not_have_the_others_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing one takes twenty times as long, and a backlog is cut at every read."""
    parsed: list[bytes] = []
    monkeypatch.setattr(usage, "decode", lambda text: parsed.append(text) or answers.decode(text))
    stream = b"".join(usual('"delta":{"content":" word"},"finish_reason":null') for _ in range(1_000))
    reads = [stream[i : i + 65_521] for i in range(0, len(stream), 65_521)]
    assert streamed([*reads, usual(LAST)]) == stream + usual(LAST)
    assert len(parsed) <= 1


@pytest.mark.parametrize("secret", [SALT, ENGINE_KEY, PROMPTS["id"]])
def test_the_usual_events_repeat_no_secret(secret: str) -> None:
    for named in ({"identity": secret}, {"model": secret}, {"identity": f"chatcmpl-{secret[:16]}"}):
        got = streamed([usual(FIRST, **named), usual(LAST, **named)])
        assert leaked([secret], got, 16) == []
        assert got.count(b"data: ") == 2


def test_the_usual_events_of_another_route_do_not_pass() -> None:
    assert b"choices" not in streamed([usual(FIRST), usual(LAST)], Route.RESPONSES)


def test_a_word_that_is_none_of_the_protocol_does_not_pass_as_a_reason() -> None:
    assert b"vault" not in streamed([usual(FIRST), usual(LAST.replace("stop", "the vault", 1))])


VECTORS = (
    b'{"id":"embd-1","object":"list","created":1,"model":"tiny","data":[{"index":0,"object":"embedding",'
    b'"embedding":[0.1,-2e-3]},{"index":1,"object":"embedding","embedding":"AAAA//8="}],'
    b'"usage":{"prompt_tokens":3,"total_tokens":3,"completion_tokens":0,"prompt_tokens_details":null}}'
)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_vectors_pass_as_they_came_in_any_pieces(size: int) -> None:
    meter = VectorsMeter(Judge(Route.EMBEDDINGS))
    pieces = [VECTORS[i : i + size] for i in range(0, len(VECTORS), size)]
    assert b"".join(map(meter.feed, pieces)) + meter.rest() == VECTORS
    assert meter.usage is not None
    assert meter.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    "spoiled",
    [
        VECTORS.replace(b'"usage"', b'"embedding","<b>"'),
        VECTORS.replace(b'"embd-1"', b'"a secret of 16 characters"'),
        VECTORS.replace(b"0.1", b"abc"),
        VECTORS.replace(b"AAAA", b"a b"),
        VECTORS.replace(b"0.1", b"127.0.0.1:41155"),
        VECTORS.replace(b"0.1", b"0." + b"123456789" * 8),
        b"127.0.0.1:41155",
        VECTORS[:36],
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_no_vector_holds_is_an_error(spoiled: bytes, size: int) -> None:
    meter = VectorsMeter(Judge(Route.EMBEDDINGS, "", ("a secret of 16 characters",)))
    with pytest.raises(RequestError):
        [meter.feed(spoiled[i : i + size]) for i in range(0, len(spoiled), size)] + [meter.rest()]
