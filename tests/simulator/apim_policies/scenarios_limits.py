"""What products promise: requests and tokens, for each subscription, however they are asked for."""

from __future__ import annotations

from huddle.wrapper.errors import ErrorType

from .lab import (
    OTHER_KEY,
    answer,
    streamed,
    words,
)
from .promises import Make, assert_refused, scenario


@scenario
async def requests_per_minute_are_limited_for_each_subscription(make: Make) -> None:
    lab = make()
    for left in (4, 3, 2, 1, 0):
        got = await lab.ask("/v1/models", say=None)
        assert got.status == 200
        assert got.headers.get("X-RateLimit-Remaining-Requests") == str(left)
        assert got.headers.get("X-RateLimit-Limit-Requests") == "5"
    lab.now += 10
    got = await lab.ask("/v1/models", say=None)
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert got.headers.get("Retry-After") == "50"
    assert len(lab.sent) == 5
    second = lab.service.subscriptions[2]
    assert second.id == "developers_second"
    assert (await lab.ask("/v1/models", say=None, key=second.keys[1])).status == 200
    assert (await lab.ask("/v1/models", say=None, key=OTHER_KEY)).status == 200
    lab.now += 50
    assert (await lab.ask("/v1/models", say=None)).status == 200


@scenario
async def tokens_per_minute_are_limited_for_each_subscription(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=100, completion=900)
    first = await lab.ask(say="x" * 384)  # 96 tokens, and 4 around the message, by the lab's estimate
    assert (first.status, first.headers.get("X-RateLimit-Remaining-Tokens")) == (200, "900")
    lab.now += 20
    got = await lab.ask()
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert got.headers.get("Retry-After") == "40"
    assert (await lab.ask("/v1/models", say=None)).status == 200, "listing models costs no tokens"
    assert (await lab.ask(key=lab.service.subscriptions[2].keys[0])).status == 200
    lab.now += 40
    assert (await lab.ask()).status == 200


@scenario
async def a_prompt_over_what_is_left_is_refused_before_it_costs_anything(make: Make) -> None:
    lab = make()
    got = await lab.ask(say="x" * 4_000)
    assert_refused(got, 429, ErrorType.RATE_LIMIT, "rate_limit_exceeded")
    assert not lab.sent
    assert (await lab.ask(say="x" * 3_900)).status == 200


@scenario
async def tokens_of_a_period_are_limited(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=10, completion=890)
    for left in (2_995, 2_095, 1_195, 295):
        got = await lab.ask()
        assert (got.status, got.headers.get("X-RateLimit-Remaining-Quota-Tokens")) == (200, str(left))
        lab.now += 60
    got = await lab.ask()
    assert_refused(got, 403, ErrorType.PERMISSION, "forbidden")
    lab.now += 86_400
    assert (await lab.ask()).status == 200


@scenario
async def streams_cost_what_plain_answers_cost(make: Make) -> None:
    lefts = []
    plain = answer(prompt=12, completion=34)
    for stream, usual in ((False, plain), (True, streamed(*words("Hel", "lo.", prompt=12, completion=34)))):
        lab = make()
        lab.usual = usual
        await lab.ask(stream=stream)
        lefts.append((await lab.ask("/v1/embeddings", say="")).headers.get("X-RateLimit-Remaining-Tokens"))
    assert lefts == [str(1_000 - 12 - 34 - 4)] * 2


@scenario
async def tokens_are_told_by_product_subscription_operation_and_backend(make: Make) -> None:
    lab = make()
    lab.usual = answer(prompt=12, completion=34)
    await lab.ask()
    await lab.ask("/v1/models", say=None)
    told = (
        ("Product ID", "developers"),
        ("Subscription ID", "developers_playground"),
        ("Operation ID", "create-chat-completion"),
        ("Backend ID", "node-1"),
    )
    assert [(metric.namespace, metric.name, metric.value) for metric in lab.metrics] == [
        ("huddle", "Prompt Tokens", 12),
        ("huddle", "Completion Tokens", 34),
        ("huddle", "Total Tokens", 46),
    ]
    assert {metric.dimensions for metric in lab.metrics} == {told}
