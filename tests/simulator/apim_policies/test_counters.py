"""Counters, pools and token counts of the lab, by themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.apim_policies.counters import Algorithm, Counters, FixedWindow, Period, SlidingWindow, TokenBucket
from simulator.apim_policies.pool import Backend, Backends, Breaker, Pool, PoolItem
from simulator.apim_policies.tokens import AnswerMeter, Tokens, estimate_prompt, estimate_text

from .lab import START


@given(
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 9)), max_size=40), st.sampled_from([SlidingWindow, TokenBucket])
)
def test_waiting_as_long_as_told_is_enough_and_not_much_too_long(
    steps: list[tuple[float, int]], make: type[SlidingWindow] | type[TokenBucket]
) -> None:
    counter, now = make(10, 60), START
    for gap, amount in steps:
        now += gap
        wait = counter.wait_s(amount, now)
        assert (wait == 0) == (counter.room(now) >= amount)
        assert counter.room(now + wait) >= amount - 1e-6
        now += wait
        counter.take(amount, now)


def test_a_bucket_fills_evenly_and_a_window_at_once() -> None:
    bucket, window = TokenBucket(60, 60), SlidingWindow(60, 60)
    for counter in (bucket, window):
        counter.take(60, START)
    assert [bucket.room(START + t) for t in (0, 1, 30, 60, 90)] == [0, 1, 30, 60, 60]
    assert [window.room(START + t) for t in (0, 1, 30, 59.9, 60)] == [0, 0, 0, 0, 60]


@pytest.mark.parametrize(
    ("period", "ends"),
    [  # from Friday, 15 January 2027, 08:00 UTC
        (Period.HOURLY, 3_600),
        (Period.DAILY, 16 * 3_600),
        (Period.WEEKLY, (16 + 48) * 3_600),
        (Period.MONTHLY, (16 + 16 * 24) * 3_600),
        (Period.YEARLY, (16 + 350 * 24) * 3_600),
    ],
)
def test_quotas_start_anew_with_their_period(period: Period, ends: int) -> None:
    quota = FixedWindow(100, period)
    quota.take(90, START)
    assert quota.wait_s(20, START) == ends
    assert quota.room(START + ends - 1) == 10
    assert quota.room(START + ends) == 100


def test_one_key_has_one_counter_for_each_policy() -> None:
    counters = Counters(Algorithm.SLIDING_WINDOW)
    assert counters[counters.rate("a", "key", 5, 60)] is counters[counters.rate("a", "key", 5, 60)]
    assert counters[counters.rate("b", "key", 5, 60)] is not counters[counters.rate("a", "key", 5, 60)]
    assert counters[counters.rate("a", "other", 5, 60)] is not counters[counters.rate("a", "key", 5, 60)]


# --- Pools


def pool(*items: PoolItem) -> Backends:
    breaker = Breaker(2, 30, ((502, 503),), 30, accept_retry_after=True)
    backends = tuple(Backend(item.backend, f"http://{item.backend}", breaker) for item in items)
    return Backends(backends, (Pool("nodes", items),))


def chosen(backends: Backends, count: int, now: float = START) -> list[str]:
    return [found.id if (found := backends.choose("nodes", now)) else "none" for _ in range(count)]


def test_weights_share_a_priority() -> None:
    found = chosen(pool(PoolItem("a", 1, 3), PoolItem("b", 1, 1)), 8)
    assert (found.count("a"), found.count("b")) == (6, 2)


def test_a_later_priority_serves_only_when_all_before_it_rest() -> None:
    backends = pool(PoolItem("a", 1), PoolItem("b", 2))
    assert chosen(backends, 3) == ["a", "a", "a"]
    first = backends.choose("a", START)
    assert first is not None
    for _ in range(2):
        backends.note(first, 503, 7, START)
    assert chosen(backends, 2) == ["b", "b"]
    assert chosen(backends, 1, START + 6) == ["b"]
    assert chosen(backends, 1, START + 7) == ["a"], "it rested for as long as its Retry-After said"


def test_other_answers_and_old_failures_trip_nothing() -> None:
    backends = pool(PoolItem("a"))
    only = backends.choose("a", START)
    assert only is not None
    for status, at in ((500, 0), (504, 0), (429, 0), (502, 0), (502, 31)):
        backends.note(only, status, None, START + at)
    assert chosen(backends, 1, START + 31) == ["a"]
    backends.note(only, 502, None, START + 32)
    assert chosen(backends, 1, START + 33) == ["none"]
    assert backends.soonest_s("nodes", START + 33) == 29


# --- Tokens


def test_prompts_are_estimated_from_their_texts() -> None:
    body = {
        "model": "not counted",
        "messages": [
            {"role": "user", "content": "12345678"},
            {"content": [{"type": "text", "text": "1234"}, {"x": 1}]},
        ],
    }
    assert estimate_prompt(json.dumps(body).encode()) == 2 * 4 + 2 + 1
    assert estimate_prompt(json.dumps({"prompt": ["1234", "12345"], "input": "x", "instructions": "y"}).encode()) == 5
    for nothing in (None, b"", b"[]", b"{", b'{"messages": 1}'):
        assert estimate_prompt(nothing) == 0


@given(st.data())
def test_a_stream_is_counted_alike_however_it_is_cut(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.text(max_size=5), max_size=5))
    usage = data.draw(st.booleans())
    events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    events += [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}] if usage else []
    whole = (
        b": hello\n\n"
        + b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
        + b"data: [DONE]\n\n"
    )
    meter = AnswerMeter(3, stream=True)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        meter.feed(whole[start:end])
    expected = Tokens(7, 9, counted=True) if usage else Tokens(3, estimate_text("".join(texts)), counted=False)
    assert meter.tokens() == expected


def test_the_responses_api_is_counted_too() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4}
    plain = AnswerMeter(0, stream=False)
    plain.feed(json.dumps({"usage": usage}).encode())
    stream = AnswerMeter(0, stream=True)
    stream.feed(b'event: x\ndata: {"delta": "abcd"}\n\n')
    assert stream.tokens() == Tokens(0, 1, counted=False)
    stream.feed(b"event: y\ndata: " + json.dumps({"response": {"usage": usage}}).encode() + b"\n\n")
    assert plain.tokens() == stream.tokens() == Tokens(3, 4, counted=True)
