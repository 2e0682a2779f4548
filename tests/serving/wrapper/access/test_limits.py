"""Limits hold, whatever the order in which requests come, end and are forgotten."""

import asyncio
import math
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.access.admission import Admission
from huddle.wrapper.access.auth import new_key
from huddle.wrapper.access.fairness import Bounds
from huddle.wrapper.access.limits import Limit, LimitError, Quota, Reservation, Subscriber, Window
from huddle.wrapper.deadline import Deadline
from huddle.wrapper.errors import RequestError
from tests.serving.wrapper.conftest import MakeWrapper
from tests.serving.wrapper.fake_engine import MODEL, USAGE, Received, Reply


@dataclass
class Book:
    """What a strict accountant would write down of one request."""

    at: float
    reserved: int
    sequences: int
    reservation: Reservation
    actual: int | None = None
    ended_at: float = field(default=math.inf)


class Schedules(RuleBasedStateMachine):
    """Any interleaving of arrivals, ends (knowing, or not, what was used) and time."""

    quota = Quota(requests_per_minute=5, tokens_per_minute=100, tokens_per_day=300, max_concurrency=3)

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.subscriber = Subscriber(self.quota)
        self.books: list[Book] = []
        self.arrivals: list[float] = []  # of those that were judged, also if they were refused then

    @property
    def running(self) -> list[Book]:
        return [book for book in self.books if book.actual is None]

    @rule(tokens=st.integers(1, 120), sequences=st.sampled_from([1, 1, 2, 3, 4]))
    def arrive(self, tokens: int, sequences: int) -> None:
        try:
            arrival = self.subscriber.arrive(self.now)
        except LimitError as refused:
            assert (refused.status, (refused.retry_after_s or 0) >= 1) == (429, True)
            return
        self.arrivals.append(self.now)
        arrival.end()
        try:
            reservation = self.subscriber.reserve(tokens, sequences, self.now)
        except RequestError as refused:
            assert refused.status == (400 if tokens > 100 or sequences > 3 else 429)
            assert refused.status == 400 or (refused.retry_after_s or 0) >= 1
            return
        self.books.append(Book(self.now, tokens, sequences, reservation))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), share=st.sampled_from([None, 0, 0.5, 1, 1.5]))
    def end(self, data: st.DataObject, share: float | None) -> None:
        book = data.draw(st.sampled_from(self.running))
        actual = None if share is None else int(book.reserved * share)
        self.subscriber.settle(book.reservation, actual, self.now)
        self.subscriber.settle(book.reservation, 10**6, self.now)  # a second end changes nothing
        book.actual = book.reserved if actual is None else actual
        book.ended_at = self.now

    @rule(seconds=st.sampled_from([0.3, 1, 7, 59, 61, 3_000, 86_000]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def no_window_holds_more_than_its_quota_and_the_overruns_of_its_requests(self) -> None:
        """Declared: only what a request used beyond what it declared may be over."""
        for limit, span in ((self.quota.tokens_per_minute, 60), (self.quota.tokens_per_day, 86_400)):
            inside = [book for book in self.books if book.at > self.now - span or book.actual is None]
            spent = sum(book.reserved if book.actual is None else book.actual for book in inside)
            overrun = sum(max(0, (book.actual or 0) - book.reserved) for book in inside)
            assert spent <= limit + overrun

    @invariant()
    def requests_and_concurrency_never_exceed(self) -> None:
        assert sum(at > self.now - 60 for at in self.arrivals) <= self.quota.requests_per_minute
        running = sum(book.sequences for book in self.running)
        assert running <= self.quota.max_concurrency
        assert self.subscriber.used(Limit.CONCURRENCY, self.now) == running

    @invariant()
    def nothing_is_held_for_ever(self) -> None:
        if not self.running:
            later = self.now + 2 * 86_400 + 5_000
            assert self.subscriber.used(Limit.TOKENS_PER_MINUTE, self.now) >= 0
            fresh = Subscriber(self.quota)
            fresh.reserve(100, 1, later)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_an_overrun_counts_against_the_time_after() -> None:
    subscriber = Subscriber(Quota(tokens_per_minute=100))
    reservation = subscriber.reserve(50, 1, 0.0)
    subscriber.settle(reservation, 180, 1.0)
    with pytest.raises(RequestError) as refused:
        subscriber.reserve(1, 1, 30.0)
    assert 30 <= (refused.value.retry_after_s or 0) <= 32
    subscriber.reserve(100, 1, 62.0)


@pytest.mark.parametrize("limit", [Limit.REQUESTS_PER_MINUTE, Limit.TOKENS_PER_MINUTE])
def test_waiting_as_long_as_told_is_long_enough(limit: Limit) -> None:
    subscriber = Subscriber(Quota(requests_per_minute=3, tokens_per_minute=100))

    def ask(now: float) -> None:
        if limit is Limit.REQUESTS_PER_MINUTE:
            subscriber.arrive(now).end()
        else:
            subscriber.settle(subscriber.reserve(40, 1, now), 40, now)

    now = 17.3
    for _ in range(30):
        try:
            ask(now)
            now += 1.7
        except RequestError as refused:
            now += refused.retry_after_s or 0
            ask(now)  # no second refusal


def test_a_request_that_never_fits_is_told_so() -> None:
    with pytest.raises(RequestError) as refused:
        Subscriber(Quota(tokens_per_minute=100)).reserve(101, 1, 0.0)
    assert (refused.value.status, refused.value.retry_after_s) == (400, None)


def test_new_limits_keep_what_was_used() -> None:
    subscriber = Subscriber(Quota(tokens_per_minute=100))
    subscriber.settle(subscriber.reserve(60, 1, 0.0), 60, 0.0)
    subscriber.reconfigure(Quota(tokens_per_minute=70))
    with pytest.raises(RequestError):
        subscriber.reserve(20, 1, 1.0)


def test_shares_of_workers_never_exceed_the_whole() -> None:
    share = Quota(10, 1001, None, 3).share(3)
    assert share == Quota(3, 333, None, 1)


def test_windows_hold_a_bounded_number_of_slots() -> None:
    window = Window(None, 60)
    for second in range(1000):
        window.charge(window.slot(second), 1, second)
    assert len(window._charges) <= 62
    assert window.used(999) in (60, 61)


# -- through the wrapper --

pytestmark_async = pytest.mark.anyio


def product(key_hash: str, **limits: int) -> dict[str, object]:
    return {"team": {"keys": [{"name": "alice", "sha256": key_hash}], **limits}}


@pytest.mark.anyio
async def test_streams_count_as_much_as_plain_answers(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))
    async with wrapper.client(key) as client:
        counted = []
        for stream in (False, True):
            body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream, "max_tokens": 5}
            before = wrapper.service._subscribers[("team", "alice")].used(Limit.TOKENS_PER_MINUTE, 0) if counted else 0
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            await wrapper.until(lambda: wrapper.service.running == 0)
            subscriber = wrapper.service._subscribers[("team", "alice")]
            counted.append(subscriber.used(Limit.TOKENS_PER_MINUTE, wrapper.service.clock()) - before)
    assert counted[0] == USAGE["total_tokens"]
    assert (
        wrapper.service._subscribers[("team", "alice")].used(Limit.TOKENS_PER_MINUTE, wrapper.service.clock())
        == 2 * USAGE["total_tokens"]
    )


@pytest.mark.anyio
async def test_over_a_limit_is_a_429_with_the_time_to_wait(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, requests_per_minute=2))
    async with wrapper.client(key) as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        statuses = [(await client.post("/v1/chat/completions", json=body)).status_code for _ in range(2)]
        refused = await client.post("/v1/chat/completions", json=body)
    assert statuses == [200, 200]
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert len(wrapper.engine.completions) == 2
    assert 'huddle_wrapper_limited_total{limit="requests_per_minute",product="team"} 1.0' in (wrapper.metrics())


@pytest.mark.anyio
async def test_a_broken_engine_costs_the_subscriber_nothing(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, tokens_per_minute=10_000))

    async def script(request: Received, reply: Reply) -> None:
        reply.reset()

    wrapper.engine.script = script
    answer = await wrapper.chat(headers={"authorization": f"Bearer {key}", "x-backend-key": ""})
    assert answer.status_code == 401  # an empty backend key is a wrong one, not none
    async with wrapper.client(key) as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 502
    used = wrapper.service._subscribers[("team", "alice")].used(Limit.TOKENS_PER_MINUTE, wrapper.service.clock())
    assert used == 0


@pytest.mark.anyio
async def test_requests_that_are_refused_count_in_the_rate(make_wrapper: MakeWrapper) -> None:
    key, digest = new_key()
    wrapper = await make_wrapper(products=product(digest, requests_per_minute=2))
    async with wrapper.client(key) as client:
        bad = {"model": MODEL, "messages": 1}
        statuses = [(await client.post("/v1/chat/completions", json=bad)).status_code for _ in range(3)]
    assert statuses == [400, 400, 429]


@pytest.mark.anyio
async def test_no_more_requests_reach_the_engine_than_allowed(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"concurrency": 3, "queue": 3})  # and one of each caller
    at_once = most = 0
    go = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await go.wait()
        at_once -= 1
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    asked = [asyncio.create_task(wrapper.chat()) for _ in range(10)]
    await wrapper.until(lambda: sum(task.done() for task in asked) == 3)
    for task in [task for task in asked if task.done()]:
        assert task.result().status_code == 429
        assert task.result().json()["error"]["code"] == "engine_busy"
        assert int(task.result().headers["retry-after"]) >= 1
    go.set()
    assert sorted([answer.status_code for answer in await asyncio.gather(*asked)]) == [200] * 7 + [429] * 3
    assert most == 3
    assert wrapper.service.admission.running == 0


@pytest.mark.anyio
async def test_the_wait_in_the_queue_is_bounded(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"concurrency": 1, "queue": 4}, timeouts={"queue_s": 0.3})

    async def script(request: Received, reply: Reply) -> None:
        await asyncio.sleep(2)
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    first = asyncio.create_task(wrapper.chat())
    await wrapper.until(lambda: wrapper.service.admission.running == 1)
    assert (await wrapper.chat()).status_code == 429
    assert (await first).status_code == 200


@pytest.mark.anyio
async def test_a_client_that_leaves_the_queue_makes_room(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"concurrency": 1, "queue": 1})
    go = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await go.wait()
        await reply.json({"usage": USAGE})

    wrapper.engine.script = script
    first = asyncio.create_task(wrapper.chat())
    await wrapper.until(lambda: wrapper.service.admission.running == 1)
    waiting = [asyncio.create_task(wrapper.chat()) for _ in range(2)]
    await wrapper.until(lambda: wrapper.service.admission.waiting == 2)
    assert (await wrapper.chat()).status_code == 429
    waiting.pop().cancel()
    await wrapper.until(lambda: wrapper.service.admission.waiting == 1)
    second = asyncio.create_task(wrapper.chat())
    await wrapper.until(lambda: wrapper.service.admission.waiting == 2)
    go.set()
    assert [(await task).status_code for task in (first, *waiting, second)] == [200, 200, 200]
    assert wrapper.service.admission.running == 0


@pytest.mark.anyio
async def test_places_are_neither_lost_nor_made_when_waiters_give_up_at_any_moment() -> None:
    admission = Admission(Bounds(2, 2, 50, {}))
    inside = most = 0

    async def visit(number: int) -> None:
        nonlocal inside, most
        await admission.enter(("", ""), 1, Deadline.after(10))
        inside += 1
        most = max(most, inside)
        try:
            await asyncio.sleep(0.001 * (number % 3))
        finally:
            inside -= 1
            admission.leave(("", ""), 1, 0.001)

    visits = [asyncio.create_task(visit(number)) for number in range(50)]
    for number, task in enumerate(visits):
        await asyncio.sleep(0)
        if number % 3 == 0:
            task.cancel()
    await asyncio.gather(*visits, return_exceptions=True)
    assert (admission.running, admission.waiting, most) == (0, 0, 2)
