"""Which connections may be open: a share for each address, room for the gateway, and who goes when it is full.

Pure: no sockets, no clock. One per event loop.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1"})  # one address: another of 127.0.0.0/8 is not by chance
_IPV6_PREFIX: Final = 64  # what one customer usually has, to choose addresses from
_MAPPED_PREFIX: Final = 96  # ::ffff:0:0/96 holds all of IPv4
_KEPT: Final = 8  # one seat of so many is for trusted addresses

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


class Seats(Generic[T]):
    """The open connections. Idle ones, whose next request is not known yet, give way to newcomers: the oldest first."""

    def __init__(self, total: int, per_address: int) -> None:
        self.total = total
        self.per_address = per_address
        self._taken: dict[T, Origin] = {}
        self._count: Counter[Origin] = Counter()
        self._untrusted = 0
        self._idle: dict[Origin, dict[T, None]] = {}  # the longest idle first

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._taken))

    def enter(self, newcomer: T, origin: Origin) -> T | None:
        """Take a seat; returns who has lost theirs for it. Raises `FullError`."""
        full = len(self._taken) >= self.total or (not origin.trusted and self._untrusted >= self.total - self._kept)
        leaver: T | None = None
        if not origin.trusted and self._count[origin] >= self.per_address:
            leaver = self._longest_idle(origin)
        elif full:
            leaver = self._longest_idle(self._giver(origin))
        if leaver is not None:
            self.leave(leaver)
        self._taken[newcomer] = origin
        self._count[origin] += 1
        self._untrusted += not origin.trusted
        self.idle(newcomer)
        return leaver

    def leave(self, seat: T) -> None:
        """Give a seat back; nothing happens when it is lost already."""
        origin = self._taken.pop(seat, None)
        if origin is None:
            return
        self._not_idle(seat, origin)
        self._untrusted -= not origin.trusted
        self._count[origin] -= 1
        if not self._count[origin]:
            del self._count[origin]

    def idle(self, seat: T) -> None:
        """It waits for a request."""
        if (origin := self._taken.get(seat)) is not None:
            self._idle.setdefault(origin, {})[seat] = None

    def busy(self, seat: T) -> None:
        """It has a request that is good so far."""
        if (origin := self._taken.get(seat)) is not None:
            self._not_idle(seat, origin)

    @property
    def _kept(self) -> int:
        return self.total // _KEPT

    def _giver(self, newcomer: Origin) -> Origin | None:
        """Who gives a seat to a newcomer: of those with an idle one, the one with the most.

        Nobody gives to who has more already. Trusted addresses give only to each other, and after all others.
        """
        if newcomer.trusted:
            return max(self._idle, key=lambda origin: (not origin.trusted, self._count[origin]), default=None)
        mine = self._count[newcomer]
        givers = (origin for origin in self._idle if not origin.trusted and self._count[origin] >= mine)
        return max(givers, key=self._count.__getitem__, default=None)

    def _longest_idle(self, giver: Origin | None) -> T:
        if giver is None or giver not in self._idle:
            raise FullError
        return next(iter(self._idle[giver]))

    def _not_idle(self, seat: T, origin: Origin) -> None:
        group = self._idle.get(origin)
        if group is not None:
            group.pop(seat, None)
            if not group:
                del self._idle[origin]
