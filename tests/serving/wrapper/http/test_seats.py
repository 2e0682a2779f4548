"""Connections have owners: what one address takes, no other lacks (F8)."""

import asyncio
from ipaddress import ip_network

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.http.seats import FullError, Origin, Origins, Seats
from tests.serving.wrapper.conftest import MakeWrapper, Wrapper

STRANGER = "127.0.0.2"


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
