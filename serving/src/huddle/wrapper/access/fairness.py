"""Who goes next when more sequences want to the engine than it has places: start-time fair queueing, in two floors.

Products take turns, each as often as its weight says; within a product, its callers take turns. A turn is paid with
places: who takes eight at once waits for eight turns of the others. Who has to collect places, since fewer are free
than his request needs, takes one at each of his turns and keeps it: so light requests do not overtake a heavy one for
ever, and it stops nobody else meanwhile. One collects at a time: two could wait for each other for ever. Who needs
several places at his turn gets what he lacks out of those collected, and the collector has those turns back; if they
are too few, the collector has this turn, too, so that there soon are enough. Nobody saves turns up while he waits for
nothing, or for his own requests.

Everything here is pure. (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queuing, SIGCOMM 1996.)
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Holder: TypeAlias = tuple[str, str]
"""A product, and a tenant of it."""
UNNAMED: Final[Holder] = ("", "")
"""Everybody whom no gateway and no key names: held to no share."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one process may let in. All in sequences; `weights` is by product, and 1 for the others.

    `queue` is what may wait behind the first requests of all callers; with 0, nobody waits.
    """

    concurrency: int
    share: int
    queue: int
    weights: Mapping[str, int]


@dataclass(slots=True, eq=False)
class Waiting:
    """A request in line. `answer` is called once: with True when it has all its places, False when it has to go."""

    holder: Holder
    weight: int
    answer: Callable[[bool], None]
    places: int = 0

    @property
    def inside(self) -> bool:
        """Whether it waits no longer."""
        return self.places == self.weight


@dataclass(slots=True)
class _Turns:
    """The virtual time of one floor, and everybody's next turn in it."""

    now: float = 0.0
    due: dict[Holder | str, float] = field(default_factory=dict)

    def come(self, who: Holder | str) -> None:
        """Join, without turns from the past."""
        self.due[who] = max(self.due.get(who, 0.0), self.now)

    def reach(self, who: Holder | str) -> None:
        """It is somebody's turn. (Who has given collected places away may be due since long ago.)"""
        self.now = max(self.now, self.due[who])


class Places:
    """The places at the engine, and the line for them."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.waiting = 0
        self._taken = 0
        self._held: dict[Holder, int] = {}
        self._lines: dict[Holder, deque[Waiting]] = {}
        self._collecting: Waiting | None = None
        self._products = _Turns()
        self._holders: dict[str, _Turns] = {}

    @property
    def running(self) -> int:
        """Sequences at the engine; places that somebody collects are not among them."""
        return self._taken - (self._collecting.places if self._collecting else 0)

    def take(self, holder: Holder, weight: int) -> bool:
        """Take places at once, if that overtakes nobody: while one is free, all who wait are over their share."""
        bounds = self.bounds
        taken = self._taken + weight
        held = self._held.get(holder, 0) + weight
        if taken > bounds.concurrency or (held > bounds.share and holder != UNNAMED):
            return False
        if self._lines and holder in self._lines:
            return False
        self._taken = taken
        self._held[holder] = held
        return True

    def give_back(self, holder: Holder, weight: int) -> None:
        """The request has left the engine."""
        self._taken -= weight
        left = self._held[holder] - weight
        if left:
            self._held[holder] = left
        else:
            del self._held[holder]
        if self._lines:
            self._hand_out()

    def line_up(self, request: Waiting) -> None:
        """Wait for places, unless the line is full: that may cost somebody else his place in it.

        Everybody may have one request in it, which takes no room from others: it may wait for nothing but its own
        caller's share. When what waits behind these is too much, it gives way, longest line first.
        """
        if request.weight > self.bounds.share or not self._has_room(request):
            request.answer(False)
            return
        if request.holder not in self._lines:
            self._lines[request.holder] = deque()
            self._products.come(request.holder[0])
            self._holders.setdefault(request.holder[0], _Turns()).come(request.holder)
        self._lines[request.holder].append(request)
        self.waiting += request.weight
        self._hand_out()

    def withdraw(self, request: Waiting) -> None:
        """The request waits no longer, if it still did; what it has collected goes to others."""
        if request in self._lines.get(request.holder, ()):
            self._remove(request)
            if request.places:
                collected, request.places = request.places, 0
                self.give_back(request.holder, collected)
            self._hand_out()

    def resize(self, bounds: Bounds) -> None:
        """New bounds. Those inside stay inside; who waits with a request that could never get in has to go."""
        self.bounds = bounds
        for request in [request for line in self._lines.values() for request in line if request.weight > bounds.share]:
            if not request.inside:
                self.withdraw(request)
                request.answer(False)
        self._hand_out()

    def _has_room(self, request: Waiting) -> bool:
        queue = self.bounds.queue
        if not queue or request.holder not in self._lines:
            return queue > 0
        behind = self.waiting - sum(line[0].weight for line in self._lines.values())
        return behind < queue or self._make_room(request)

    def _make_room(self, request: Waiting) -> bool:
        """Send away from the longest lines what a request needs, as far as they are longer than its own."""
        own = self._surplus(request.holder) + request.weight / self._weight(request.holder)
        room = 0
        while room < request.weight:
            longest = max(self._lines, key=self._surplus)
            if self._surplus(longest) <= own:
                break
            last = self._lines[longest][-1]
            room += last.weight
            self._remove(last)  # it is no first one, so that it has collected nothing
            last.answer(False)
        return room > 0

    def _surplus(self, holder: Holder) -> float:
        """Sequences behind the first request of a line, as its product's weight makes them count."""
        line = self._lines[holder]
        return (sum(request.weight for request in line) - line[0].weight) / self._weight(holder)

    def _weight(self, holder: Holder) -> int:
        return self.bounds.weights.get(holder[0], 1)

    def _remove(self, request: Waiting) -> None:
        line = self._lines[request.holder]
        line.remove(request)
        if not line:
            del self._lines[request.holder]
        self.waiting -= request.weight
        if request is self._collecting:
            self._collecting = None
        if not self._lines:  # nobody has been hurt: everybody begins anew
            self._products, self._holders = _Turns(), {}

    def _hand_out(self) -> None:
        """Give the free places away, turn by turn."""
        while (free := self.bounds.concurrency - self._taken) > 0 and (request := self._next()) is not None:
            missing = request.weight - request.places
            collecting = self._collecting
            if collecting is not None and request is not collecting and missing > free:
                if missing <= free + collecting.places:
                    self._give(collecting, free - missing)
                    if not collecting.places:
                        self._collecting = None
                    free = missing
                else:
                    request, missing = collecting, collecting.weight - collecting.places
            self._give(request, missing if missing <= free else 1)
            if request.inside:
                self._remove(request)
                request.answer(True)
            else:
                self._collecting = request

    def _give(self, request: Waiting, count: int) -> None:
        """Give places for turns; take them back, turns included, when `count` is below zero."""
        holder = request.holder
        self._products.due[holder[0]] += count / self._weight(holder)
        self._holders[holder[0]].due[holder] += count
        request.places += count
        self._taken += count
        held = self._held.get(holder, 0) + count
        if held:
            self._held[holder] = held
        else:
            del self._held[holder]

    def _next(self) -> Waiting | None:
        """Whose turn it is: the first request of a line."""
        able = [holder for holder, line in self._lines.items() if self._may(line[0])]
        if not able:
            return None
        chosen = min(able, key=lambda holder: (self._products.due[holder[0]], self._holders[holder[0]].due[holder]))
        self._products.reach(chosen[0])
        self._holders[chosen[0]].reach(chosen)
        if len(able) < len(self._lines):
            products = {holder[0] for holder in able}
            for holder in self._lines.keys() - set(able):
                self._holders[holder[0]].come(holder)
                if holder[0] not in products:
                    self._products.come(holder[0])
        return self._lines[chosen][0]

    def _may(self, request: Waiting) -> bool:
        """Whether a request would keep its holder within his share."""
        holder = request.holder
        held = self._held.get(holder, 0) + request.weight - request.places
        return held <= self.bounds.share or holder == UNNAMED
