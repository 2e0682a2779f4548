"""The gateway's policy and the wrapper's own limiter, asked the same: they differ by what a request declares, no more.

Both limit requests and tokens a minute. The wrapper reserves the most that a request may use and settles afterwards;
the gateway counts the prompt's estimate at once and the rest when the answer is known. So for the same history:

- Requests a minute: the same decision, but for the wrapper's slots of a second: it may hold on a little longer.
- Tokens a minute: what the wrapper refuses and the gateway lets through lacks no more than what running requests have
  declared beyond what the gateway has counted (the declared estimate), or lies in the wrapper's slot of a second.
- What the gateway refuses and the wrapper lets through lacks no more than what answers cost that had been admitted over
  a minute ago: the gateway counts an answer when it ends, the wrapper when it began.
"""

from __future__ import annotations

import asyncio
import copy
import json
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from huddle.wrapper.access.limits import Limit, Quota, Reservation, Subscriber
from huddle.wrapper.errors import RequestError
from simulator.apim_policies.counters import Algorithm
from simulator.apim_policies.messages import Response
from simulator.apim_policies.tokens import estimate_prompt

from .lab import KEY, PRODUCTS, START, Lab, answer, request, service

CALLS, TOKENS, MINUTE, SLOT = 5, 1_000, 60, 1
PRODUCT = {"developers": {name: value for name, value in PRODUCTS["developers"].items() if name != "token_quota"}}
SERVICES = {algorithm: service(algorithm, products=PRODUCT) for algorithm in Algorithm}
GATEWAYS = {algorithm: Lab(made).gateway for algorithm, made in SERVICES.items()}


@dataclass(frozen=True)
class Asked:
    """One request: when, how long its prompt, the most it may put out, what it put out, how long that took."""

    at: float
    prompt_chars: int
    most: int
    used: int
    takes: float

    @property
    def body(self) -> bytes:
        return json.dumps({"messages": [{"role": "user", "content": "x" * self.prompt_chars}]}).encode()

    @property
    def estimate(self) -> int:
        return estimate_prompt(self.body)


@st.composite
def schedules(draw: st.DrawFn) -> list[Asked]:
    gaps = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 30.0, 61.0]), min_size=1, max_size=25))
    durations = st.sampled_from([0.0, 2.0, 70.0])
    asked, now = [], START
    for gap in gaps:
        now += gap
        most = draw(st.integers(1, 600))
        asked.append(
            Asked(
                now,
                draw(st.integers(0, 1_600)),
                most,
                draw(st.integers(0, most)),
                draw(durations),
            )
        )
    return asked


@dataclass
class Running:
    """A request that both let through, until it ends."""

    asked: Asked
    response: Response
    reservation: Reservation

    @property
    def ends(self) -> float:
        return self.asked.at + self.asked.takes


class Both:
    """The two limiters with one history."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.lab = Lab(SERVICES[algorithm], GATEWAYS[algorithm])
        self.wrapper = Subscriber(Quota(requests_per_minute=CALLS, tokens_per_minute=TOKENS))
        self.running: list[Running] = []
        self.done: list[Running] = []

    async def ask(self, asked: Asked) -> tuple[bool, bool]:
        """Whether gateway and wrapper let a request through; only what both do happens."""
        await self.end_until(asked.at)
        self.lab.now = asked.at
        self.lab.usual = answer(prompt=asked.estimate, completion=asked.used)
        held = copy.deepcopy(self.lab.counters.held)
        response = await self.lab.gateway.handle(request(key=KEY, body=asked.body))
        probe = copy.deepcopy(self.wrapper)
        reservation = self._reserve(probe, asked)
        lets = response.status == 200, reservation is not None
        if all(lets):
            self.wrapper, reserved = probe, reservation
            assert reserved is not None
            self.running.append(Running(asked, response, reserved))
        else:
            self.lab.counters.held = held
        return lets

    def _reserve(self, wrapper: Subscriber, asked: Asked) -> Reservation | None:
        try:
            wrapper.arrive(asked.at).end()
            return wrapper.reserve(asked.estimate + asked.most, 1, asked.at)
        except RequestError:
            return None

    async def end_until(self, now: float) -> None:
        for running in sorted(self.running, key=lambda each: each.ends):
            if running.ends <= now:
                self.lab.now = running.ends
                await running.response.read()
                self.wrapper.settle(running.reservation, running.asked.estimate + running.asked.used, running.ends)
                self.running.remove(running)
                self.done.append(running)

    # -- what may explain a difference --

    def declared(self, asked: Asked) -> int:
        """What the wrapper holds for requests that run (this one included) beyond what the gateway counts."""
        forgotten = sum(run.asked.estimate for run in self.running if run.asked.at <= asked.at - MINUTE)
        return asked.most + forgotten + sum(run.asked.most for run in self.running)

    def in_last_slot(self, now: float) -> list[Asked]:
        """Requests that are out of the gateway's minute, and perhaps not yet of the wrapper's."""
        everyone = [run.asked for run in self.done + self.running]
        return [each for each in everyone if now - MINUTE - 2 * SLOT <= each.at <= now - MINUTE]

    def counted_late(self, now: float) -> int:
        """Tokens that the gateway counted at an answer's end, which the wrapper has forgotten with its beginning."""
        return sum(
            run.asked.used for run in self.done if run.ends > now - MINUTE and run.asked.at < now - MINUTE + 2 * SLOT
        )

    def calls(self, now: float) -> int:
        return sum(run.asked.at > now - MINUTE for run in self.done + self.running)

    def tokens(self, now: float) -> int:
        """What the gateway counts: estimates of what began, answers that ended, within the minute."""
        everyone = self.done + self.running
        begun = sum(run.asked.estimate for run in everyone if run.asked.at > now - MINUTE)
        return begun + sum(run.asked.used for run in self.done if run.ends > now - MINUTE)


@settings(max_examples=100)
@given(schedules())
def test_gateway_and_wrapper_decide_alike_within_the_declared_estimate(schedule: list[Asked]) -> None:
    async def run() -> None:
        both = Both(Algorithm.SLIDING_WINDOW)
        for asked in schedule:
            by_gateway, by_wrapper = await both.ask(asked)
            if by_gateway == by_wrapper:
                continue
            wants = both.tokens(asked.at) + max(asked.estimate, 1)
            if by_gateway:
                late = both.in_last_slot(asked.at)
                too_many = both.calls(asked.at) + len(late) >= CALLS
                lately = sum(each.estimate + each.used for each in late)
                assert too_many or wants + both.declared(asked) + lately > TOKENS
            else:
                assert both.calls(asked.at) < CALLS, "for a call that the wrapper has room for, the gateway has"
                assert wants > TOKENS >= wants - both.counted_late(asked.at)

    asyncio.run(run())


@settings(max_examples=100)
@given(schedules())
def test_without_output_and_waiting_the_two_decide_alike(schedule: list[Asked]) -> None:
    """Nothing declared beyond the prompt, whole seconds between slots: then there is nothing to differ about."""

    async def run() -> None:
        both = Both(Algorithm.SLIDING_WINDOW)
        for number, asked in enumerate(schedule):
            plain = replace(asked, at=START + 7.0 * number, most=0, used=0, takes=0.0)
            by_gateway, by_wrapper = await both.ask(plain)
            assert by_gateway == by_wrapper

    asyncio.run(run())


@settings(max_examples=60)
@given(schedules())
def test_a_token_bucket_lets_through_no_more_than_it_holds_and_fills(schedule: list[Asked]) -> None:
    """v2 tiers: in any time t no more than the limit and its share of t, and one answer's overdraft."""

    async def run() -> None:
        lab = Lab(SERVICES[Algorithm.TOKEN_BUCKET], GATEWAYS[Algorithm.TOKEN_BUCKET])
        let: list[Asked] = []
        for asked in schedule:
            lab.now = asked.at
            lab.usual = answer(prompt=asked.estimate, completion=asked.used)
            if (await lab.ask(body=asked.body)).status == 200:
                let.append(asked)
        for first in range(len(let)):
            for last in range(first, len(let)):
                took = let[last].at - let[first].at
                assert last - first + 1 <= CALLS * (1 + took / MINUTE) + 1e-6
                before = sum(each.estimate + each.used for each in let[first:last])
                assert before + let[last].estimate <= TOKENS * (1 + took / MINUTE) + 1e-6

    asyncio.run(run())


def test_the_limits_are_the_products() -> None:
    """The wrapper's limiter is asked with the numbers that the gateway's policy holds."""
    assert f'calls="{CALLS}"' in SERVICES[Algorithm.SLIDING_WINDOW].products[0].policy
    assert f'tokens-per-minute="{TOKENS}"' in SERVICES[Algorithm.SLIDING_WINDOW].products[0].policy
    assert Limit.TOKENS_PER_MINUTE.value in Quota.__dataclass_fields__
