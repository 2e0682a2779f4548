"""Connections have owners: what one address or one caller takes, no other lacks (F8)."""

import asyncio
from collections import Counter
from ipaddress import ip_network

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.errors import RequestError
from huddle.wrapper.http.seats import FullError, Origin, Origins, Seats
from tests.serving.wrapper.conftest import BACKEND_KEY, MakeWrapper, Wrapper
from tests.serving.wrapper.fake_engine import Received, Reply
from tests.serving.wrapper.http.raw_requests import SMALL, head, holders
from tools.deadlines import scaled

STRANGER = "127.0.0.2"


class Chairs(RuleBasedStateMachine):
    """Connections from a few addresses that come, ask for a few callers, are answered and go in any order."""

    total, per_address, per_owner = 16, 6, 4
    origins = tuple(Origin(f"10.0.0.{i}", trusted=i == 0) for i in range(5))

    def __init__(self) -> None:
        super().__init__()
        self.seats: Seats[int] = Seats(self.total, self.per_address, self.per_owner)
        self.inside: dict[int, Origin] = {}
        self.idle: list[int] = []
        self.owner: dict[int, str] = {}
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
            self.owner.pop(leaver, None)
            assert next(seat for seat in self.idle if self.inside.get(seat, loser) == loser) == leaver  # the oldest
            self.idle.remove(leaver)
            assert origin.trusted or not loser.trusted
            assert origin.trusted or loser == origin or self.count(loser) + 1 >= self.count(origin)
        self.inside[self.number] = origin
        self.idle.append(self.number)

    @precondition(lambda self: self.idle)
    @rule(data=st.data(), owner=st.sampled_from(["alice", "bob", None]))
    def ask(self, data: st.DataObject, owner: str | None) -> None:
        seat = data.draw(st.sampled_from(self.idle))
        others = [one for one, its in self.owner.items() if its == owner and one != seat]
        oldest = next((one for one in self.idle if one in others), None)
        try:
            leaver = self.seats.claim(seat, owner)
        except RequestError as refused:
            assert (refused.status, refused.close, oldest) == (429, True, None)
            assert len(others) == self.per_owner
            return
        assert leaver == (oldest if len(others) == self.per_owner else None)
        if leaver is not None:
            self.idle.remove(leaver)
            del self.inside[leaver], self.owner[leaver]
        self.owner.pop(seat, None)
        if owner is not None:
            self.owner[seat] = owner
        self.idle.remove(seat)
        self.seats.busy(seat)

    @precondition(lambda self: len(self.inside) > len(self.idle))
    @rule(data=st.data())
    def answered(self, data: st.DataObject) -> None:
        seat = data.draw(st.sampled_from([seat for seat in self.inside if seat not in self.idle]))
        self.idle.append(seat)
        self.seats.idle(seat)
        if self.inside[seat].trusted:
            self.owner.pop(seat, None)  # it is for anybody

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        seat = data.draw(st.sampled_from(list(self.inside)))
        del self.inside[seat]
        self.owner.pop(seat, None)
        if seat in self.idle:
            self.idle.remove(seat)
        self.seats.leave(seat)
        self.seats.leave(seat)
        self.seats.idle(seat)
        assert self.seats.claim(seat, "alice") is None

    @invariant()
    def shares_hold(self) -> None:
        assert set(self.seats) == self.inside.keys()
        assert len(self.inside) <= self.total
        untrusted = [origin for origin in self.inside.values() if not origin.trusted]
        assert len(untrusted) <= self.total - self.total // 8
        assert all(self.count(origin) <= self.per_address for origin in untrusted)
        assert all(count <= self.per_owner for count in Counter(self.owner.values()).values())
        assert self.seats._owned == self.owner


TestChairs = Chairs.TestCase
TestChairs.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)


def test_who_is_above_a_lowered_share_loses_idle_seats_one_by_one_and_never_the_asking_one() -> None:
    seats: Seats[str] = Seats(16, 16, 4)
    for seat in "abc":
        seats.enter(seat, Origin("10.0.0.1", trusted=False))
        seats.claim(seat, "alice")
        seats.idle(seat)
    seats.resize(16, 16, 1)
    assert [seats.claim("a", "alice"), seats.claim("a", "alice"), seats.claim("a", "alice")] == ["b", "c", None]
    assert list(seats) == ["a"]


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


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def silent(request: Received, reply: Reply) -> None:
    await reply.closed_by_peer()


async def ask(connection: Connection, request: bytes) -> bytes:
    """The head of the answer, or nothing where the connection is closed."""
    reader, writer = connection
    writer.write(request)
    async with asyncio.timeout(scaled(5)):
        try:
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(answer.split(b"content-length: ")[1].split(b"\r\n")[0]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
    return answer


@pytest.mark.anyio
async def test_f8_one_key_from_many_addresses_leaves_seats_to_the_others(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products, limits={"connections": 16, "caller_share": 0.5})
    wrapper.engine.script = silent
    addresses = [f"127.0.0.{i}" for i in range(2, 14)]  # one seat of the untrusted ones is left
    alice = await idle_from(wrapper, *addresses)
    for number, (_, writer) in enumerate(alice[:8], 1):
        writer.write(head(keys["alice"], len(SMALL)) + SMALL)
        await wrapper.until(lambda n=number: len(wrapper.engine.completions) == n)  # type: ignore[misc]
    for reader, writer in alice[8:]:
        writer.write(head(keys["alice"], 1_000) + b" ")  # told with its head, its body not waited for
        async with asyncio.timeout(scaled(5)):
            answer = await reader.read()  # up to the close
        assert answer.startswith(b"HTTP/1.1 429")
        assert b'"code": "too_many_connections"' in answer
        writer.close()
    assert len(wrapper.engine.completions) == 8
    wrapper.engine.script = type(wrapper.engine)().script
    (bob,) = await idle_from(wrapper, "127.0.0.20")
    assert (await ask(bob, head(keys["bob"], len(SMALL)) + SMALL)).startswith(b"HTTP/1.1 200")
    assert (await wrapper.chat()).status_code == 200
    alice[0][1].close()
    await wrapper.until(lambda: wrapper.service.running == 7)
    (again,) = await idle_from(wrapper, "127.0.0.21")
    assert (await ask(again, head(keys["alice"], len(SMALL)) + SMALL)).startswith(b"HTTP/1.1 200")
    for _, writer in (*alice, bob, again):
        writer.close()


@pytest.mark.anyio
async def test_a_callers_oldest_idle_connection_goes_for_its_next(make_wrapper: MakeWrapper) -> None:
    keys, products = holders()
    wrapper = await make_wrapper(products=products, limits={"connections": 8, "caller_share": 0.25})
    first, second, third, other = await idle_from(wrapper, *(f"127.0.0.{i}" for i in range(2, 6)))
    requests = {name: head(key, len(SMALL)) + SMALL for name, key in keys.items()}
    for connection, name in ((first, "alice"), (other, "bob"), (second, "alice"), (first, "alice"), (third, "alice")):
        assert (await ask(connection, requests[name])).startswith(b"HTTP/1.1 200")
    assert await ask(second, requests["alice"]) == b""  # closed: `first` has been used since
    for connection, name in ((first, "bob"), (other, "bob"), (third, "alice")):
        assert (await ask(connection, requests[name])).startswith(b"HTTP/1.1 200")
    for _, writer in (first, second, third, other):
        writer.close()


@pytest.mark.anyio
async def test_the_gateways_connections_are_its_tenants_only_during_their_requests(make_wrapper: MakeWrapper) -> None:
    wrapper = await make_wrapper(limits={"connections": 8, "caller_share": 0.25})
    gateway = [await wrapper.connect() for _ in range(6)]

    def of(tenant: str) -> bytes:
        keys = f"x-backend-key: {BACKEND_KEY}\r\nx-huddle-tenant: {tenant}"
        return head("", len(SMALL)).replace(b"authorization: Bearer ", keys.encode()) + SMALL

    for connection in gateway:
        assert (await ask(connection, of("a"))).startswith(b"HTTP/1.1 200")
    for connection in gateway:  # all are still there, for anybody
        assert (await ask(connection, of("b"))).startswith(b"HTTP/1.1 200")
    wrapper.engine.script = silent
    for _, writer in gateway[:2]:
        writer.write(of("a"))
    await wrapper.until(lambda: wrapper.service.running == 2)
    assert (await ask(gateway[2], of("a"))).startswith(b"HTTP/1.1 429")
    wrapper.engine.script = type(wrapper.engine)().script
    assert (await ask(gateway[3], of("b"))).startswith(b"HTTP/1.1 200")
    for _, writer in gateway:
        writer.close()
