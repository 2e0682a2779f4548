"""Elements that count: rate-limit-by-key, llm-token-limit, llm-emit-token-metric.

From their pages (docs/facts/api-management.md#limits and #tokens-of-streams): rates answer 429, quotas 403; prompt
tokens are estimated before, what an answer used counts after it; the headers named in the attributes tell what is left;
metrics take the usage of a stream that tells it. Assumptions: so do limits (`limits_estimate_streams`: not); what
is left in the headers is what is left after this request's estimate; a request that was refused or got no answer
counts its estimate; a client that leaves early is counted with what it had got.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from gateway_policies.source import Element, PolicyFault, Text
from simulator.apim_policies import fields
from simulator.apim_policies.counters import Period
from simulator.apim_policies.exchange import Exchange, Failed, LastError, Metric, Step
from simulator.apim_policies.tokens import AnswerMeter, Tokens, estimate_prompt

Settle: TypeAlias = Callable[[Tokens], None]

_LONGEST_RENEWAL_S = 300
_MOST_DIMENSIONS = 5
_MINUTE_S = 60.0


def rate_limit_by_key(element: Element, _: str) -> Step:
    """`rate-limit-by-key`: requests a period."""
    given = fields.attributes(
        element,
        {"calls": fields.positive, "renewal-period": _renewal, "counter-key": fields.value},
        {"remaining-calls-header-name": fields.literal, "total-calls-header-name": fields.literal},
    )
    fields.children(element, (), most=0)

    async def step(exchange: Exchange) -> None:
        counters = exchange.environment.counters
        key = given["counter-key"](exchange)
        counter = counters[counters.rate(element.tag, key, given["calls"], given["renewal-period"])]
        if counter.room(exchange.now) < 1:
            wait = counter.wait_s(1, exchange.now)
            error = LastError(element.tag, "RateLimitExceeded", "Rate limit is exceeded")
            raise Failed(429, error, ("Retry-After", str(wait)))
        counter.take(1, exchange.now)
        _tell(exchange, given.get("remaining-calls-header-name"), counter.room(exchange.now))
        _tell(exchange, given.get("total-calls-header-name"), given["calls"])

    return step


def _renewal(text: Text) -> int:
    seconds = fields.positive(text)
    if seconds > _LONGEST_RENEWAL_S:
        raise PolicyFault(text.place, f"{seconds} s is too long; allowed: 1-{_LONGEST_RENEWAL_S}")
    return seconds


def llm_token_limit(element: Element, _: str) -> Step:
    """`llm-token-limit`: tokens a minute, tokens a period, or both."""
    given = fields.attributes(
        element,
        {"counter-key": fields.value, "estimate-prompt-tokens": fields.one_of("true")},
        {
            "tokens-per-minute": fields.positive,
            "token-quota": fields.positive,
            "token-quota-period": fields.one_of(*Period),
            "remaining-tokens-header-name": fields.literal,
            "remaining-quota-tokens-header-name": fields.literal,
        },
    )
    fields.children(element, (), most=0)
    per_minute, quota, period = (given.get(name) for name in ("tokens-per-minute", "token-quota", "token-quota-period"))
    if (quota is None) != (period is None):
        raise PolicyFault(element.place, "token-quota and token-quota-period need each other")
    if per_minute is None and quota is None:
        raise PolicyFault(element.place, f"<{element.tag}> limits nothing")

    async def step(exchange: Exchange) -> None:
        counters = exchange.environment.counters
        key = given["counter-key"](exchange)
        limits = []
        if per_minute is not None:
            name = counters.rate(element.tag, key, per_minute, _MINUTE_S)
            limits.append((name, 429, "remaining-tokens-header-name"))
        if quota is not None:
            name = counters.quota(element.tag, key, quota, Period(str(period)))
            limits.append((name, 403, "remaining-quota-tokens-header-name"))
        estimate = estimate_prompt(exchange.request.body)
        for name, status, _ in limits:
            counter = counters[name]
            if counter.room(exchange.now) < max(estimate, 1):
                wait = counter.wait_s(max(estimate, 1), exchange.now)
                error = LastError(element.tag, "TokenLimitExceeded", "Token limit is exceeded")
                raise Failed(status, error, ("Retry-After", str(wait)))
        for name, _, header in limits:
            counters[name].take(estimate, exchange.now)
            _tell(exchange, given.get(header), counters[name].room(exchange.now))

        def settle(used: Tokens) -> None:
            for name, _, _ in limits:
                counters[name].take(used.total - estimate, exchange.now)

        _watch(exchange, settle, estimate_streams=exchange.environment.limits_estimate_streams)

    return step


def llm_emit_token_metric(element: Element, _: str) -> Step:
    """`llm-emit-token-metric`: three metrics a request, with dimensions of their own."""
    given = fields.attributes(element, {"namespace": fields.literal})
    dimensions = []
    for child in fields.children(element, ("dimension",), least=1, most=_MOST_DIMENSIONS):
        named = fields.attributes(child, {"name": fields.literal}, {"value": fields.value})
        if "value" not in named and named["name"] not in _DEFAULT_DIMENSIONS:
            raise PolicyFault(
                child.place, f"{named['name']!r} needs a value; without: {', '.join(_DEFAULT_DIMENSIONS)}"
            )
        dimensions.append((named["name"], named.get("value") or _DEFAULT_DIMENSIONS[named["name"]]))

    async def step(exchange: Exchange) -> None:
        def emit(used: Tokens) -> None:
            told = tuple((name, value(exchange)) for name, value in dimensions)
            counts = (
                ("Prompt Tokens", used.prompt),
                ("Completion Tokens", used.completion),
                ("Total Tokens", used.total),
            )
            for name, value in counts:
                exchange.environment.metrics.append(Metric(given["namespace"], name, value, told))

        _watch(exchange, emit)

    return step


_DEFAULT_DIMENSIONS: dict[str, fields.Value] = {
    "API ID": lambda exchange: exchange.api.id if exchange.api else "",
    "Backend ID": lambda exchange: exchange.backend_id,
    "Operation ID": lambda exchange: exchange.operation.id if exchange.operation else "",
    "Product ID": lambda exchange: exchange.product.id if exchange.product else "",
    "Subscription ID": lambda exchange: exchange.subscription.id if exchange.subscription else "",
}


def _watch(exchange: Exchange, settle: Settle, *, estimate_streams: bool = False) -> None:
    """Have `settle` called with what the request used, when its answer has ended."""
    meter: list[AnswerMeter] = []
    estimate = estimate_prompt(exchange.request.body)

    def feed(chunk: bytes) -> None:
        if not meter:
            answer = exchange.response
            kind = (answer.headers.get("Content-Type") or "") if answer else ""
            stream = kind.startswith("text/event-stream")
            meter.append(AnswerMeter(estimate, stream=stream, by_usage=not (stream and estimate_streams)))
        meter[0].feed(chunk)

    def end() -> None:
        refused = exchange.response is not None and exchange.response.status >= 400
        used = meter[0].tokens() if meter else Tokens(estimate, 0, counted=False)
        settle(Tokens(estimate, 0, counted=False) if refused else used)

    exchange.watchers.append(feed)
    exchange.ended.append(end)


def _tell(exchange: Exchange, header: str | None, left: float) -> None:
    if header is not None:
        exchange.own_headers.append((header, str(max(0, math.floor(left)))))
