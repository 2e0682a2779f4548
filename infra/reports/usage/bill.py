"""Who used the nodes how much, and what that cost. Pure: token counts, hours and prices in, money out, to the cent.

A node costs the same whether it works or waits. So each product pays for the seconds that its tokens kept an engine
busy, and what nobody used is shown as idle capacity instead of being spread over whoever happened to come.

Seconds come from the planner (`huddle.planner`), which was calibrated on measurements: reading a prompt is much cheaper
per token than writing an answer, so tokens are not counted alike. The load they are taken from is `REFERENCE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from huddle.planner.speed import Load, Replica
from plan.azure.gateway_model import GatewayPlan

REFERENCE = Load(streams=64, prompt_tokens=512, output_tokens=128)
"""A busy engine: with fewer requests at a time each costs more, and is charged as if the engine were filled."""
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class TokenUse:
    """What one subscription of a product used."""

    product: str
    subscription: str
    prompt_tokens: int
    completion_tokens: int

    @property
    def tokens(self) -> int:
        """Tokens of prompt and answer together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Rate:
    """Seconds that a well-filled engine needs for one token."""

    prompt_s: float
    completion_s: float

    def seconds(self, use: TokenUse) -> float:
        """How long an engine was busy with it."""
        return use.prompt_tokens * self.prompt_s + use.completion_tokens * self.completion_s


@dataclass(frozen=True)
class Capacity:
    """What was paid for: engines that could have worked for some hours, and the price of that time (USD cents)."""

    engines: int
    hours: float
    gpu_cents: int
    platform_cents: int

    @property
    def seconds(self) -> float:
        """Engine seconds that there were."""
        return self.engines * self.hours * SECONDS_PER_HOUR


@dataclass(frozen=True)
class Share:
    """One line: a subscription's part. `busy_s` are engine seconds, `cents` its part of the GPU cost."""

    use: TokenUse
    busy_s: float
    cents: int


@dataclass(frozen=True)
class Bill:
    """Everything that was paid for, once: shares, idle capacity and the rest of the platform sum to `total_cents`.

    `overrun` is how many times more seconds the tokens needed than there were, by the planner's figures; 1 or less is
    the normal case, more means that the figures are too slow for this load, and shares are scaled to what there was.
    """

    shares: tuple[Share, ...]
    idle_cents: int
    platform_cents: int
    total_cents: int
    utilization: float
    overrun: float

    @property
    def by_product(self) -> Mapping[str, int]:
        """US cents by product, the sum over its subscriptions."""
        found: dict[str, int] = {}
        for share in self.shares:
            found[share.use.product] = found.get(share.use.product, 0) + share.cents
        return found


def rate_of(replica: Replica, load: Load = REFERENCE) -> Rate:
    """Seconds a token at a reference load: a whole request's time, with the prompt's part taken out of it."""
    prompt_s = replica.prefill_ms(load.prompt_tokens, replica.gpu.batched_tokens) / 1e3 / load.prompt_tokens
    request_s = load.output_tokens / replica.served(load)
    completion_s = max(request_s - prompt_s * load.prompt_tokens, 0.0) / load.output_tokens
    return Rate(prompt_s, completion_s)


def settle(uses: Sequence[TokenUse], rates: Mapping[str, Rate], capacity: Capacity) -> Bill:
    """Divide what was paid. `rates` holds each product's; one without (it left the stack file, say) is charged the
    dearest.
    """
    dearest = max(rates.values(), key=lambda rate: rate.completion_s)
    busy = [rates.get(use.product, dearest).seconds(use) for use in uses]
    used, there = sum(busy), capacity.seconds
    idle = max(there - used, 0.0)
    *parts, idle_cents = divide(capacity.gpu_cents, [*busy, idle])
    return Bill(
        shares=tuple(Share(use, seconds, cents) for use, seconds, cents in zip(uses, busy, parts, strict=True)),
        idle_cents=idle_cents,
        platform_cents=capacity.platform_cents,
        total_cents=capacity.gpu_cents + capacity.platform_cents,
        utilization=min(used / there, 1.0) if there else 0.0,
        overrun=used / there if there else 0.0,
    )


def divide(cents: int, weights: Sequence[float]) -> list[int]:
    """Whole cents by weight, which sum to exactly `cents`: the largest remainders get what rounding down left.

    Without any weight, the last one gets it all.
    """
    exact = [Fraction(weight) for weight in weights]
    total = sum(exact)
    if not total:
        return [*[0] * (len(weights) - 1), cents]
    quotas = [cents * weight / total for weight in exact]
    parts = [int(quota) for quota in quotas]
    order = sorted(range(len(quotas)), key=lambda at: (parts[at] - quotas[at], at))
    for at in order[: cents - sum(parts)]:
        parts[at] += 1
    return parts


def merged(uses: Iterable[TokenUse]) -> tuple[TokenUse, ...]:
    """One entry for each subscription, in the order of names: exports have a row for each hour, or for each page."""
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for use in uses:
        prompt, completion = found.get((use.product, use.subscription), (0, 0))
        found[use.product, use.subscription] = (prompt + use.prompt_tokens, completion + use.completion_tokens)
    return tuple(TokenUse(*names, *tokens) for names, tokens in sorted(found.items()))


def base_of(gateway: GatewayPlan, bases: Mapping[str, str]) -> Mapping[str, str]:
    """The base model behind each product. `bases` maps served names to theirs; a product's all share one engine."""
    return {product.id: bases[product.models[0]] for product in gateway.products}
