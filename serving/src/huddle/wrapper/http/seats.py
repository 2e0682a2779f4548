"""Which connections may be open: shares for addresses and callers, room for the gateway, and who goes when it is full.

Pure: no sockets, no clock. One per event loop.
"""

import ipaddress
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

from huddle.wrapper.errors import ErrorType, RequestError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})  # one address: another of 127.0.0.0/8 is not by chance
_IPV6_PREFIX: Final = 64  # what one customer usually has, to choose addresses from
_MAPPED_PREFIX: Final = 96  # ::ffff:0:0/96 holds all of IPv4
_KEPT: Final = 8  # one seat of so many is for trusted addresses
_RETRY_AFTER_S: Final = 2

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Who has connected: an address (of IPv6 its /64 network), and whether it is the gateway's or this machine's."""

    address: str
    trusted: bool


class FullError(Exception):
    """There is no seat for a newcomer."""


class Origins:
    """Tells origins by a socket's peer name."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(map(_unmapped, trusted))
        self._of_host = lru_cache(4_096)(self._judge)

    def of(self, peer: object) -> Origin:
        """The origin of a peer. Whoever comes through a Unix socket is one, and trusted: its permissions decide."""
        return self._of_host(peer[0]) if isinstance(peer, tuple) else Origin("unix", trusted=True)

    def _judge(self, host: str) -> Origin:
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        trusted = str(address) in _LOOPBACK or any(address in network for network in self._trusted)
        if isinstance(address, ipaddress.IPv6Address):
            return Origin(str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False)), trusted)
        return Origin(str(address), trusted)


def _unmapped(network: Network) -> Network:
    """An IPv4 network that is written as IPv6 (`::ffff:10.0.0.0/120`), as the addresses in it are judged."""
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED_PREFIX:
        address = network.network_address.ipv4_mapped
        if address is not None:
            return ipaddress.IPv4Network((address, network.prefixlen - _MAPPED_PREFIX))
    return network


class _Groups(Generic[K, T]):
    """Seats by whom they count for: how many, and the idle ones, the longest idle first."""

    def __init__(self) -> None:
        self.count: Counter[K] = Counter()
        self.idle: dict[K, dict[T, None]] = {}

    def join(self, group: K) -> None:
        self.count[group] += 1

    def part(self, group: K, seat: T) -> None:
        self.busy(group, seat)
        self.count[group] -= 1
        if not self.count[group]:
            del self.count[group]

    def rest(self, group: K, seat: T) -> None:
        self.idle.setdefault(group, {})[seat] = None

    def busy(self, group: K, seat: T) -> None:
        idle = self.idle.get(group)
        if idle is not None:
            idle.pop(seat, None)
            if not idle:
                del self.idle[group]


class Seats(Generic[T]):
    """The open connections. Idle ones, whose next request is not known yet, give way to newcomers: the oldest first.

    A seat counts for its address, and for the owner of its request, or of the last one: a caller who comes from many
    addresses has no more for it. Between two requests a trusted address's seat has no owner, since it is for anybody.
    """

    def __init__(self, total: int, per_address: int, per_owner: int) -> None:
        self.resize(total, per_address, per_owner)
        self._taken: dict[T, Origin] = {}
        self._owned: dict[T, Hashable] = {}
        self._untrusted = 0
        self._origins: _Groups[Origin, T] = _Groups()
        self._owners: _Groups[Hashable, T] = _Groups()

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._taken))

    def resize(self, total: int, per_address: int, per_owner: int) -> None:
        """New bounds; who has a seat keeps it until somebody else needs it."""
        self.total, self.per_address, self.per_owner = total, per_address, per_owner

    def enter(self, newcomer: T, origin: Origin) -> T | None:
        """Take a seat; returns who has lost theirs for it. Raises `FullError`."""
        full = len(self._taken) >= self.total or (not origin.trusted and self._untrusted >= self.total - self._kept)
        leaver: T | None = None
        if not origin.trusted and self._origins.count[origin] >= self.per_address:
            leaver = self._longest_idle(origin)
        elif full:
            leaver = self._longest_idle(self._giver(origin))
        if leaver is not None:
            self.leave(leaver)
        self._taken[newcomer] = origin
        self._origins.join(origin)
        self._untrusted += not origin.trusted
        self.idle(newcomer)
        return leaver

    def claim(self, seat: T, owner: Hashable) -> T | None:
        """A seat's next request is `owner`'s (None: nobody's); returns who of his others has lost theirs for it.

        Raises `RequestError` (429), changing nothing.
        """
        if seat not in self._taken:
            return None
        before, leaver = self._owned.get(seat), None
        if owner is not None and self._owners.count[owner] - (before == owner) >= self.per_owner:
            leaver = next((idle for idle in self._owners.idle.get(owner, ()) if idle != seat), None)
            if leaver is None:
                raise _no_seat(self.per_owner)
            self.leave(leaver)
        if before != owner:
            self._disown(seat)
            if owner is not None:
                self._owned[seat] = owner
                self._owners.join(owner)
        return leaver

    def leave(self, seat: T) -> None:
        """Give a seat back; nothing happens when it is lost already."""
        origin = self._taken.pop(seat, None)
        if origin is None:
            return
        self._disown(seat)
        self._origins.part(origin, seat)
        self._untrusted -= not origin.trusted

    def idle(self, seat: T) -> None:
        """It waits for a request."""
        if (origin := self._taken.get(seat)) is None:
            return
        self._origins.rest(origin, seat)
        if origin.trusted:
            self._disown(seat)
        elif (owner := self._owned.get(seat)) is not None:
            self._owners.rest(owner, seat)

    def busy(self, seat: T) -> None:
        """It has a request that is good so far."""
        if (origin := self._taken.get(seat)) is None:
            return
        self._origins.busy(origin, seat)
        if (owner := self._owned.get(seat)) is not None:
            self._owners.busy(owner, seat)

    @property
    def _kept(self) -> int:
        return self.total // _KEPT

    def _giver(self, newcomer: Origin) -> Origin | None:
        """Who gives a seat to a newcomer: of those with an idle one, the one with the most.

        Nobody gives to who has more already. Trusted addresses give only to each other, and after all others.
        """
        idle, count = self._origins.idle, self._origins.count
        if newcomer.trusted:
            return max(idle, key=lambda origin: (not origin.trusted, count[origin]), default=None)
        mine = count[newcomer]
        givers = (origin for origin in idle if not origin.trusted and count[origin] >= mine)
        return max(givers, key=count.__getitem__, default=None)

    def _longest_idle(self, giver: Origin | None) -> T:
        if giver is None or giver not in self._origins.idle:
            raise FullError
        return next(iter(self._origins.idle[giver]))

    def _disown(self, seat: T) -> None:
        owner = self._owned.pop(seat, None)
        if owner is not None:
            self._owners.part(owner, seat)


def _no_seat(per_owner: int) -> RequestError:
    return RequestError(
        429,
        "too_many_connections",
        f"your requests have {per_owner} connections already, as many as one caller may have",
        type=ErrorType.RATE_LIMIT,
        retry_after_s=_RETRY_AFTER_S,
        close=True,
    )
