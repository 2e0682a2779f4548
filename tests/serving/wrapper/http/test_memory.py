"""Memory has owners: what one caller's bodies take, no other caller lacks.

The numbers F6, F9 and F15 are those of the attacks that each test holds off.
"""

import asyncio
import gc
import tracemalloc
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.body.prepare import Prepared
from huddle.wrapper.engine.answers import Judge
from huddle.wrapper.engine.usage import PlainMeter, StreamMeter, VectorsMeter
from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.http1 import HttpLimits, RequestReader
from huddle.wrapper.http.ledger import SMALL_BYTES, Holding, Ledger, large_room
from huddle.wrapper.routes import Route
from tests.serving.wrapper.conftest import BACKEND_KEY, MakeWrapper
from tests.serving.wrapper.fake_engine import DONE, Received, Reply, Script, token
from tests.serving.wrapper.http.raw_requests import SMALL, head, holders, status


async def silent(request: Received, reply: Reply) -> None:
    await reply.closed_by_peer()


class Memory(RuleBasedStateMachine):
    """Holdings of three owners that grow, shrink and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(total=1_000_000, per_owner=400_000)
        self.sizes: dict[Holding, tuple[str, int]] = {}
        self.partial: dict[Holding, int] = {}

    @rule(owner=st.sampled_from("abc"))
    def arrive(self, owner: str) -> None:
        holding = Holding(self.ledger)
        holding.belongs_to(owner)
        self.sizes[holding] = (owner, 0)
        self.partial[holding] = 0

    @precondition(lambda self: self.sizes)
    @rule(data=st.data(), size=st.one_of(st.integers(0, 70_000), st.integers(0, 400_000)), partial=st.booleans())
    def hold(self, data: st.DataObject, size: int, partial: bool) -> None:
        holding = data.draw(st.sampled_from(list(self.sizes)))
        owner, before = self.sizes[holding]
        waits = self.partial[holding]
        rest, now = (before, waits) if partial else (waits, before)  # what of this holding stays, and what changes
        others = self.ledger.held - now
        mine = self.ledger.owners.get(owner, 0) - now
        room = self.ledger.total if rest + size <= SMALL_BYTES else large_room(self.ledger.total)
        try:
            (holding.hold_partial if partial else holding.hold)(size)
        except RequestError as refused:
            assert refused.retry_after_s
            assert refused.status == (429 if mine + size > self.ledger.per_owner else 503)
            assert size > now
            assert mine + size > self.ledger.per_owner or others + size > room
            return
        if partial:
            self.partial[holding] = size
        else:
            self.sizes[holding] = (owner, size)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from(list(self.sizes)))
        holding.release()
        holding.release()  # a second end changes nothing
        del self.sizes[holding], self.partial[holding]

    @invariant()
    def what_is_counted_is_what_is_held(self) -> None:
        by_owner: Counter[str] = Counter()
        for holding, (owner, size) in self.sizes.items():
            by_owner[owner] += size + self.partial[holding]
        assert self.ledger.owners == {owner: size for owner, size in by_owner.items() if size}
        assert self.ledger.held == sum(by_owner.values()) <= self.ledger.total
        assert all(size <= self.ledger.per_owner for size in by_owner.values())


def test_the_room_for_small_holdings_is_for_what_is_small_as_a_whole() -> None:
    ledger = Ledger(2_000_000, 2_000_000)
    large, first, second = Holding(ledger), Holding(ledger), Holding(ledger)
    large.hold(large_room(2_000_000))
    first.hold(SMALL_BYTES - 1_000)
    second.hold_partial(1_000)
    for grow in (first.hold_partial, lambda size: second.hold(size + SMALL_BYTES - 3_000)):
        with pytest.raises(RequestError):
            grow(2_001)
    first.hold_partial(1_000)


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.anyio
async def test_f6_slow_bodies_of_one_key_leave_room_for_everybody_else(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    limits = {"body_bytes": 100_000, "buffered_bytes": 400_000, "buffered_bytes_per_caller": 250_000}
    wrapper = await make_wrapper(products=products, limits=limits)
    slow = [await wrapper.connect() for _ in range(2)]
    for _, writer in slow:
        writer.write(head(keys["alice"], 100_000) + b" " * 99_000)
    await wrapper.until(lambda: wrapper.service.ledger.held == 198_000)
    refused = await wrapper.raw(head(keys["alice"], 100_000) + b" " * 99_000)
    assert refused.startswith(b"HTTP/1.1 429")
    assert b"retry-after: " in refused
    assert await status(wrapper, head(keys["bob"], 99_000) + SMALL.ljust(99_000)) == 200
    for path in ("/ready", "/health"):
        assert await status(wrapper, f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode()) in (200, 503)
        assert wrapper.service.ledger.held == 198_000
    for _, writer in slow:
        writer.close()
    await wrapper.until(lambda: wrapper.service.ledger.held + wrapper.service.ledger.heads == 0)
    assert await status(wrapper, head(keys["alice"], len(SMALL)) + SMALL) == 200


@pytest.mark.anyio
async def test_f6_small_requests_get_in_when_large_ones_have_filled_their_room(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products, limits={"body_bytes": 150_000, "buffered_bytes": 250_000})
    _, slow = await wrapper.connect()
    slow.write(head(keys["alice"], 150_000) + b" " * 149_000)
    await wrapper.until(lambda: wrapper.service.ledger.held == 149_000)
    assert (await wrapper.raw(head(keys["bob"], 80_000) + b" " * 75_000)).startswith(b"HTTP/1.1 503")
    assert await status(wrapper, head(keys["bob"], len(SMALL)) + SMALL) == 200
    slow.close()


@pytest.mark.anyio
async def test_f6_bodies_that_arrive_count_against_the_keys_concurrency(make_wrapper: MakeWrapper) -> None:
    keys, products = holders(max_concurrency=1)
    wrapper = await make_wrapper(products=products)
    _, slow = await wrapper.connect()
    slow.write(head(keys["alice"], 1_000) + b" ")
    await wrapper.until(lambda: wrapper.service.ledger.held == 1)
    refused = await wrapper.raw(head(keys["alice"], 1_000, "expect: 100-continue"))
    assert refused.startswith(b"HTTP/1.1 429")  # before a byte of the body was asked for
    assert b"max_concurrency" in refused
    assert await status(wrapper, head(keys["bob"], len(SMALL)) + SMALL) == 200
    slow.close()
    await wrapper.until(lambda: wrapper.service.ledger.held == 0)
    for _ in range(3):
        assert await status(wrapper, head(keys["alice"], len(SMALL)) + SMALL) == 200


@pytest.mark.anyio
async def test_no_end_of_an_arriving_body_costs_a_place_for_ever(make_wrapper: MakeWrapper) -> None:
    keys, products = holders(max_concurrency=1, requests_per_minute=100)
    wrapper = await make_wrapper(products=products, timeouts={"client_body_s": 0.4})
    for length, body in ((8, b"not json"), (5, b"{")):
        refused = await wrapper.raw(head(keys["alice"], length, "connection: close") + body)
        assert refused.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408"))
        assert await status(wrapper, head(keys["alice"], len(SMALL)) + SMALL) == 200
    assert (await wrapper.raw(head(keys["alice"], None) + b"zz\r\n")).startswith(b"HTTP/1.1 400")
    assert await status(wrapper, head(keys["alice"], len(SMALL)) + SMALL) == 200


@pytest.mark.anyio
@pytest.mark.slow
async def test_f9_what_is_accounted_is_what_120_waiting_bodies_hold(make_wrapper: MakeWrapper) -> None:
    """One is at the engine, which reads it (and holds it, in this process); the others wait, prepared."""
    count, size = 120, 8_000_000
    limits = {"concurrency": 1, "queue": count, "buffered_bytes": 2**31, "buffered_bytes_per_caller": 2**31}
    keys, products = holders()
    wrapper = await make_wrapper(products=products, limits=limits, timeouts={"queue_s": 900, "client_body_s": 900})
    wrapper.engine.script = silent
    body = SMALL.replace(b"hi", b"a" * size)
    request = head(keys["alice"], len(body)) + body
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        clients = [await wrapper.connect() for _ in range(count)]
        for _, writer in clients:
            writer.write(request)
        await wrapper.until(lambda: wrapper.service.admission.waiting == count - 1, 600)
        await wrapper.until(lambda: len(wrapper.engine.completions) == 1, 60)
        engine = sum(len(received.raw) + len(received.body) for received in wrapper.engine.completions)
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before - engine
    finally:
        tracemalloc.stop()
    assert wrapper.service.ledger.held >= count * size
    assert held == pytest.approx(wrapper.service.ledger.held, rel=0.1)
    for _, writer in clients:
        writer.close()
    await wrapper.until(lambda: wrapper.service.ledger.held == 0, 60)


@pytest.mark.anyio
async def test_f9_prepared_bodies_count_until_the_engine_answers(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    limits = {"body_bytes": 100_000, "buffered_bytes": 400_000, "buffered_bytes_per_caller": 150_000}
    wrapper = await make_wrapper(products=products, limits=limits)
    begin = asyncio.Event()
    finish = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        await begin.wait()
        await reply.stream_head()
        await finish.wait()
        await reply.end()

    wrapper.engine.script = script
    body = SMALL.replace(b"hi", b"a" * 90_000)
    _, waiting = await wrapper.connect()
    waiting.write(head(keys["alice"], len(body)) + body)
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    assert wrapper.service.ledger.held >= 90_000
    assert await status(wrapper, head(keys["alice"], len(body)) + body) == 429
    begin.set()
    await wrapper.until(lambda: wrapper.service.ledger.held == 0)
    finish.set()
    waiting.close()


def test_f15_a_body_in_tiny_chunks_is_refused_early() -> None:
    reader = RequestReader(HttpLimits())
    reader.feed(head("k", None))
    with pytest.raises(RequestError) as refused:
        for _ in range(100_000):
            reader.feed(b"2\r\naa\r\n")
    assert refused.value.status == 413
    assert reader.body_bytes < 10_000


def test_f15_a_body_in_small_chunks_holds_its_bytes_and_little_more() -> None:
    reader = RequestReader(HttpLimits())
    reader.feed(head("k", None))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(12_000):
            size = 64 if reader.body_bytes < 200_000 else 512
            reader.feed(b"%x\r\n%b\r\n" % (size, b"a" * size))
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held <= 1.1 * reader.body_bytes
    reader.feed(b"0\r\n\r\n")
    assert reader.take_body() == b"a" * reader.body_bytes


METERS = {
    "stream": (lambda: StreamMeter(Judge(Route.CHAT), hide=False, error=lambda _: b""), b'data: {"a": "'),
    "plain": (lambda: PlainMeter(Judge(Route.CHAT)), b'{"a": "'),
    "vectors": (lambda: VectorsMeter(Judge(Route.EMBEDDINGS)), b'{"data":[{"embedding":"'),
}


@pytest.mark.parametrize(
    ("name", "piece"), [("stream", 16), ("stream", 30_000), ("plain", 16), ("plain", 30_000), ("vectors", 30_000)]
)
def test_what_a_meter_says_that_it_holds_is_what_it_holds(name: str, piece: int) -> None:
    make, begin = METERS[name]
    meter = make()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        meter.feed(begin)
        for number in range(900_000 // piece):
            meter.feed(bytes([97 + number % 26]) * piece)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held == pytest.approx(meter.size, rel=0.1)
    assert meter.size > 800_000


def unfinished(finish: asyncio.Event, size: int) -> Script:
    """A stream whose second event is long, and whole only later."""
    text = token("a" * size)

    async def script(request: Received, reply: Reply) -> None:
        await reply.stream_head()
        await reply.chunk(token("a"))
        await reply.chunk(text[:-10])
        await finish.wait()
        if not reply.writer.is_closing():
            await reply.chunk(text[-10:] + DONE)
            await reply.end()

    return script


STREAM = SMALL.replace(b"{", b'{"stream": true, ', 1)


@pytest.mark.anyio
async def test_an_unfinished_event_counts_as_its_callers_until_it_is_whole(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products)
    ledger, finish = wrapper.service.ledger, asyncio.Event()
    wrapper.engine.script = unfinished(finish, 3_000_000)
    _, left = await wrapper.connect()
    left.write(head(keys["bob"], len(STREAM)) + STREAM)
    asked = asyncio.create_task(wrapper.raw(head(keys["alice"], len(STREAM), "connection: close") + STREAM, timeout=20))
    await wrapper.until(lambda: sorted(ledger.owners.values()) == [pytest.approx(3_000_000, abs=500)] * 2)
    left.close()  # in the middle of it
    await wrapper.until(lambda: len(ledger.owners) == 1)
    assert [(product, who.rpartition("\0")[2]) for product, who in ledger.owners] == [("team", "alice")]
    finish.set()
    answer = await asked
    assert answer.count(b"a" * 1_000) >= 2_500
    assert answer.endswith(b"0\r\n\r\n")
    await wrapper.until(lambda: ledger.held + ledger.heads == 0)


@pytest.mark.anyio
async def test_unfinished_events_stay_within_their_callers_part(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    limits = {"body_bytes": 100_000, "buffered_bytes": 8_000_000, "buffered_bytes_per_caller": 2_000_000}
    wrapper = await make_wrapper(products=products, limits=limits)
    finish = asyncio.Event()
    wrapper.engine.script = unfinished(finish, 1_500_000)
    _, first = await wrapper.connect()
    first.write(head(keys["alice"], len(STREAM)) + STREAM)
    await wrapper.until(lambda: wrapper.service.ledger.held > 1_400_000)
    cut = await wrapper.raw(head(keys["alice"], len(STREAM)) + STREAM)
    assert b'"code": "out_of_buffers"' in cut
    assert not cut.endswith(b"0\r\n\r\n")  # no proper end
    await wrapper.until(lambda: wrapper.service.ledger.held < 1_600_000)
    other = asyncio.create_task(wrapper.raw(head(keys["bob"], len(STREAM), "connection: close") + STREAM, timeout=20))
    await wrapper.until(lambda: wrapper.service.ledger.held > 2_900_000)
    finish.set()
    assert (await other).endswith(b"0\r\n\r\n")
    first.close()
    await wrapper.until(lambda: wrapper.service.ledger.held == 0)


@pytest.mark.anyio
@pytest.mark.parametrize("stream", [True, False])
async def test_nothing_of_an_answer_counts_after_its_end(make_wrapper: MakeWrapper, stream: bool) -> None:
    wrapper = await make_wrapper()
    end = asyncio.Event()

    async def script(request: Received, reply: Reply) -> None:
        if stream:
            await reply.stream_head()
            await reply.chunk(token("a" * 5_000)[:-2])
        else:
            await reply.raw(b"HTTP/1.1 200 X\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
            await reply.chunk(b"[" * 5_000)
        await end.wait()
        await reply.end()

    wrapper.engine.script = script
    asked = asyncio.create_task(wrapper.chat(stream=stream))
    await wrapper.until(lambda: wrapper.service.ledger.held >= 5_000)
    end.set()
    assert (await asked).status_code == (200 if stream else 502)
    assert len(wrapper.service._seats) == 1  # kept alive
    assert wrapper.service.ledger.held == 0


@pytest.mark.anyio
async def test_who_leaves_takes_along_what_is_held_for_him(make_wrapper: MakeWrapper) -> None:
    """A request is booked a moment after its end; it holds nothing until then."""
    wrapper = await make_wrapper(limits={"concurrency": 1})
    wrapper.engine.script = silent
    body = SMALL.replace(b"hi", b"a" * 100_000)
    clients = [await wrapper.connect() for _ in range(2)]
    for _, writer in clients:
        writer.write(head("", len(body), f"x-backend-key: {BACKEND_KEY}") + body)
    await wrapper.until(lambda: wrapper.service.admission.waiting == 1)
    for _, writer in clients:
        writer.close()
    await wrapper.until(lambda: wrapper.service.running == 0)
    gc.collect()
    assert not [held for held in gc.get_objects() if isinstance(held, Prepared) and len(held.body) > 100_000]
    assert [len(ended._body) for ended, *_ in wrapper.service._unbooked] in ([0, 0], [])
