"""Memory, connections and time have owners: what one caller takes, no other caller lacks.

The numbers F6 to F17 are those of the attacks that each test holds off.
"""

import asyncio
import gc
import json
import random
import socket
import threading
import tracemalloc
from collections import Counter
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.access.auth import new_key
from huddle.wrapper.body.caps import Caps
from huddle.wrapper.body.effort import MOST_NS, effort_ns, prepared_at_once
from huddle.wrapper.body.prepare import Preparer, Served
from huddle.wrapper.body.prompts import Prompt
from huddle.wrapper.body.strictjson import parse_object
from huddle.wrapper.errors import RequestError
from huddle.wrapper.exchange import Exchange
from huddle.wrapper.http.http1 import HttpLimits, RequestReader
from huddle.wrapper.http.ledger import SMALL_BYTES, Holding, Ledger, large_room
from huddle.wrapper.http.seats import FullError, Origin, Origins, Seats
from huddle.wrapper.routes import Route
from huddle.wrapper.workbench import Workbench
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import MODEL, USAGE, Received, Reply
from tools.deadlines import scaled

SMALL = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
STRANGER = "127.0.0.2"


def head(key: str, length: int | None, *extra: str) -> bytes:
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    lines = [f"authorization: Bearer {key}", "content-type: application/json", framing, *extra]
    return ("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n" + "\r\n".join(lines) + "\r\n\r\n").encode()


def holders(**limits: int) -> tuple[dict[str, str], dict[str, Any]]:
    """Keys of alice and bob, and the product that both use."""
    made = {name: new_key() for name in ("alice", "bob")}
    keys = [{"name": name, "sha256": digest} for name, (_, digest) in made.items()]
    return {name: key for name, (key, _) in made.items()}, {"team": {"keys": keys, **limits}}


async def status(wrapper: Wrapper, request: bytes) -> int:
    answer = await wrapper.raw(request.replace(b"\r\nhost: a", b"\r\nhost: a\r\nconnection: close", 1))
    return int(answer.split(b" ", 2)[1])


async def silent(request: Received, reply: Reply) -> None:
    await reply.closed_by_peer()


# -- memory --


class Memory(RuleBasedStateMachine):
    """Holdings of three owners that grow, shrink and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(total=1_000_000, per_owner=400_000)
        self.sizes: dict[Holding, tuple[str, int]] = {}

    @rule(owner=st.sampled_from("abc"))
    def arrive(self, owner: str) -> None:
        holding = Holding(self.ledger)
        holding.belongs_to(owner)
        self.sizes[holding] = (owner, 0)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data(), size=st.integers(0, 500_000))
    def hold(self, data: st.DataObject, size: int) -> None:
        holding = data.draw(st.sampled_from(list(self.sizes)))
        owner, before = self.sizes[holding]
        others = self.ledger.held - before
        mine = self.ledger.owners.get(owner, 0) - before
        room = self.ledger.total if size <= SMALL_BYTES else large_room(self.ledger.total)
        try:
            holding.hold(size)
        except RequestError as refused:
            assert refused.retry_after_s
            assert refused.status == (429 if mine + size > self.ledger.per_owner else 503)
            assert size > before
            assert mine + size > self.ledger.per_owner or others + size > room
            return
        self.sizes[holding] = (owner, size)

    @precondition(lambda self: self.sizes)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        holding = data.draw(st.sampled_from(list(self.sizes)))
        holding.release()
        holding.release()  # a second end changes nothing
        del self.sizes[holding]

    @invariant()
    def what_is_counted_is_what_is_held(self) -> None:
        by_owner: Counter[str] = Counter()
        for owner, size in self.sizes.values():
            by_owner[owner] += size
        assert self.ledger.owners == {owner: size for owner, size in by_owner.items() if size}
        assert self.ledger.held == sum(by_owner.values()) <= self.ledger.total
        assert all(size <= self.ledger.per_owner for size in by_owner.values())


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


# -- answers that nobody reads --


async def unread(wrapper: Wrapper) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection whose client takes in little."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", wrapper.port))
    return await asyncio.open_connection(sock=made, limit=1_024)


@pytest.mark.anyio
async def test_f10_who_does_not_read_gets_no_further_answer(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products)

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 200_000}]})

    wrapper.engine.script = script
    reader, writer = await unread(wrapper)
    asked = 0
    connection = None
    while connection is None or not connection.stalled:
        writer.write(head(keys["alice"], len(SMALL)) + SMALL)
        asked += 1
        await wrapper.until(lambda n=asked: len(wrapper.engine.completions) == n and wrapper.service.running == 0)
        (connection,) = wrapper.service._seats
    assert wrapper.service.ledger.held > 0  # what waits for the reader has an owner
    writer.write(head(keys["alice"], len(SMALL)) + SMALL)
    await asyncio.sleep(0.3)
    assert len(wrapper.engine.completions) == asked
    received = b""
    async with asyncio.timeout(scaled(20)):
        while received.count(b"HTTP/1.1 200") < asked + 1 or not received.endswith(b"}"):
            received += await reader.read(100_000)
    assert len(wrapper.engine.completions) == asked + 1
    assert wrapper.service.ledger.held == 0
    writer.close()


@pytest.mark.anyio
async def test_f10_a_client_that_never_reads_its_last_answer_is_cut(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(timeouts={"client_stall_s": 0.5, "client_idle_s": 3_600})

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 5_000_000}]})

    wrapper.engine.script = script
    key = "x-backend-key: backend-key-0123456789abcdef"
    _, writer = await unread(wrapper)
    writer.write(head("", len(SMALL), key) + SMALL)
    await wrapper.until(lambda: len(wrapper.engine.completions) == 1)
    await wrapper.until(lambda: len(wrapper.service._seats) == 0, 10)
    assert wrapper.service.ledger.held == 0
    writer.close()


@pytest.mark.anyio
async def test_answers_that_wait_for_readers_stay_within_their_owners_part(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    limits = {"body_bytes": 10_000, "buffered_bytes": 4_000_000, "buffered_bytes_per_caller": 500_000}
    wrapper = await make_wrapper(products=products, limits=limits)

    async def script(request: Received, reply: Reply) -> None:
        await reply.json({"usage": USAGE, "choices": [{"text": "a" * 8_000_000}]})

    wrapper.engine.script = script
    clients = [await unread(wrapper) for _ in range(12)]
    for _, writer in clients:
        writer.write(head(keys["alice"], len(SMALL)) + SMALL)
    await wrapper.until(lambda: len(wrapper.engine.completions) == 12)
    await wrapper.until(lambda: len(wrapper.service._seats) < 12)  # some were cut for the others
    assert 0 < wrapper.service.ledger.held <= 500_000
    wrapper.engine.script = type(wrapper.engine)().script
    assert await status(wrapper, head(keys["bob"], len(SMALL)) + SMALL) == 200
    for _, writer in clients:
        writer.close()


# -- connections --


class Chairs(RuleBasedStateMachine):
    """Connections from a few addresses that come, ask, are answered and go in any order."""

    total, per_address = 16, 6
    origins = tuple(Origin(f"10.0.0.{i}", trusted=i == 0) for i in range(5))

    def __init__(self) -> None:
        super().__init__()
        self.seats: Seats[int] = Seats(self.total, self.per_address)
        self.inside: dict[int, Origin] = {}
        self.idle: list[int] = []
        self.number = 0

    def count(self, origin: Origin) -> int:
        return sum(one == origin for one in self.inside.values())

    @rule(origin=st.sampled_from(origins))
    def come(self, origin: Origin) -> None:
        self.number += 1
        try:
            leaver = self.seats.enter(self.number, origin)
        except FullError:
            if origin.trusted:
                assert len(self.inside) == self.total
                assert not self.idle
            return
        if leaver is not None:
            loser = self.inside[leaver]
            if not origin.trusted and self.count(origin) < self.per_address:
                givers = {self.inside[seat] for seat in self.idle if not self.inside[seat].trusted}
                assert self.count(loser) == max(map(self.count, givers))
            del self.inside[leaver]
            assert next(seat for seat in self.idle if self.inside.get(seat, loser) == loser) == leaver  # the oldest
            self.idle.remove(leaver)
            assert origin.trusted or not loser.trusted
            assert origin.trusted or loser == origin or self.count(loser) + 1 >= self.count(origin)
        self.inside[self.number] = origin
        self.idle.append(self.number)

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        seat = data.draw(st.sampled_from(self.idle))
        self.idle.remove(seat)
        self.seats.busy(seat)

    @precondition(lambda self: len(self.inside) > len(self.idle))
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        seat = data.draw(st.sampled_from([seat for seat in self.inside if seat not in self.idle]))
        self.idle.append(seat)
        self.seats.idle(seat)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        seat = data.draw(st.sampled_from(list(self.inside)))
        del self.inside[seat]
        if seat in self.idle:
            self.idle.remove(seat)
        self.seats.leave(seat)
        self.seats.leave(seat)
        self.seats.idle(seat)

    @invariant()
    def shares_hold(self) -> None:
        assert set(self.seats) == self.inside.keys()
        assert len(self.inside) <= self.total
        untrusted = [origin for origin in self.inside.values() if not origin.trusted]
        assert len(untrusted) <= self.total - self.total // 8
        assert all(self.count(origin) <= self.per_address for origin in untrusted)


TestChairs = Chairs.TestCase
TestChairs.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def test_a_gateways_ipv4_network_may_be_written_as_ipv6() -> None:
    origins = Origins([ip_network("::ffff:10.0.0.0/120")])
    assert [origins.of((host, 1)).trusted for host in ("10.0.0.7", "::ffff:10.0.0.7", "10.0.1.7")] == [
        True,
        True,
        False,
    ]


def test_origins() -> None:
    origins = Origins([ip_network("10.1.0.0/24"), ip_network("fd00::/64")])
    assert origins.of(("10.1.0.7", 1)) == Origin("10.1.0.7", trusted=True)
    assert origins.of(("10.1.1.7", 1)) == Origin("10.1.1.7", trusted=False)
    assert origins.of(("::ffff:10.1.0.7", 1, 0, 0)) == Origin("10.1.0.7", trusted=True)
    assert origins.of(("127.0.0.1", 1)).trusted
    assert origins.of(("::1", 1, 0, 0)).trusted
    assert origins.of(("fd00::5", 1, 0, 0)).trusted
    assert origins.of(("fe80::1%eth0", 1, 0, 2)) == origins.of(("fe80::2", 1, 0, 0))  # one /64
    assert origins.of("") == origins.of("/run/x") == Origin("unix", trusted=True)


async def idle_from(wrapper: Wrapper, *addresses: str) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    return [await asyncio.open_connection("127.0.0.1", wrapper.port, local_addr=(address, 0)) for address in addresses]


@pytest.mark.anyio
async def test_f8_idle_connections_lock_nobody_out(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"connections": 8, "connections_per_address": 5})
    idle = await idle_from(wrapper, *[STRANGER] * 9)

    def closed() -> list[bool]:
        return [reader.at_eof() or reader.exception() is not None for reader, _ in idle]

    await wrapper.until(lambda: closed() == [True] * 4 + [False] * 5)  # the oldest went for the newest
    more = await idle_from(wrapper, *(f"127.0.0.{i}" for i in range(3, 9)))
    health = await wrapper.raw(b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
    assert health.startswith(b"HTTP/1.1 200")
    assert (await wrapper.chat()).status_code == 200
    assert len(wrapper.service._seats) <= 8
    assert 'refusals_total{code="connection_evicted"}' in wrapper.metrics()
    for _, writer in (*idle, *more):
        writer.close()


# -- time --


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
    "8 MB of commas in a text": lambda: json.dumps({"a": "a, b.c: {[ " * 700_000}).encode(),
    "8 MB of quotes in a text": lambda: json.dumps({"a": 'say "yes" \\ or ' * 400_000}).encode(),
    "a picture": lambda: json.dumps({"a": "data:image/png;base64," + "iVBORw0KGgo=" * 600_000}).encode(),
    "digits in a text": lambda: json.dumps({"a": "1" * 1_000_000}).encode(),
    "5,000 messages": lambda: listed('{"role":"user","content":"hello, you"}', 5_000),
}


@pytest.mark.parametrize("case", WIDE)
def test_f16_what_would_hold_the_interpreter_is_refused(case: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_object(WIDE[case](), 64)
    assert refused.value.status in (400, 413)


@pytest.mark.parametrize("case", FINE)
def test_f16_what_real_clients_send_is_not(case: str) -> None:
    assert parse_object(FINE[case](), 64)
    assert effort_ns(FINE[case]()) < MOST_NS


@pytest.mark.anyio
@pytest.mark.parametrize(("values", "inline"), [(10, True), (20_000, False)])
async def test_f16_many_values_are_prepared_beside_the_loop_whatever_their_bytes(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch, values: int, inline: bool
) -> None:
    seen: list[bool] = []
    whole = Exchange._prepare

    def spy(self: Exchange) -> Any:
        seen.append(threading.current_thread() is threading.main_thread())
        return whole(self)

    monkeypatch.setattr(Exchange, "_prepare", spy)
    body = listed('"#"', values)
    assert len(body) < 256 * 1024
    assert prepared_at_once(body) == inline
    answer = await wrapper.http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert seen == [inline]


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
    for _ in range(50):
        text = "".join(draw.choice('a"\\,:{[.') for _ in range(20_000))
        body = json.dumps({"a": text, "b": [0] * 5_000}).encode()
        assert effort_ns(body) < effort_ns(json.dumps({"a": "a", "b": [0] * 5_000}).encode()) + 500_000


@pytest.mark.anyio
async def test_large_bodies_are_prepared_one_at_a_time_also_when_their_clients_leave() -> None:
    bench = Workbench(8, 60)
    inside = most = 0

    def work() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.1)
        inside -= 1

    async def prepare() -> None:
        async with bench.turn(("team", "alice")) as run:
            await run(work)

    tasks = [asyncio.create_task(prepare()) for _ in range(5)]
    await asyncio.sleep(0.02)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await prepare()
    assert most == 1


def test_f17_texts_times_system_prompt_are_bounded_before_they_are_built() -> None:
    preparer = Preparer({"m": Served("m", "m", Prompt("p", "x" * 20_000))}, Caps(sequences=4_096))
    body = json.dumps({"model": "m", "prompt": ["a"] * 2_048}).encode()
    with pytest.raises(RequestError) as refused:
        preparer.prepare(Route.COMPLETIONS, body, "salt")
    assert (refused.value.status, refused.value.param) == (400, "prompt")
    most = Caps().prompt_copies_bytes // 20_000
    for count in (1, most):
        body = json.dumps({"model": "m", "prompt": ["a"] * count}).encode()
        assert preparer.prepare(Route.COMPLETIONS, body, "salt").body.count(b"xa") == 0
    huge = Preparer({"m": Served("m", "m", Prompt("p", "x" * 3_000_000))}, Caps())
    assert huge.prepare(Route.COMPLETIONS, b'{"model":"m","prompt":"a"}', "salt")
