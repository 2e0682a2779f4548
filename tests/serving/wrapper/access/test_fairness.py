"""Places at the engine go round fairly, whatever comes, leaves and gives up in whatever order."""

import itertools
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from huddle.wrapper.access.fairness import UNNAMED, Bounds, Holder, Places, Waiting

HOLDERS: list[Holder] = [UNNAMED, ("a", "1"), ("a", "2"), ("b", "1"), ("c", "1")]
WEIGHTS = {"a": 3, "b": 1}


@dataclass(eq=False)
class Request:
    """One request and what has been said to it."""

    holder: Holder
    weight: int
    answers: list[bool] = field(default_factory=list)
    waiting: Waiting | None = None


class Schedules(RuleBasedStateMachine):
    """Any interleaving of arrivals, ends, waits given up and new bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.bounds = Bounds(8, 4, 10, WEIGHTS)
        self.places = Places(self.bounds)
        self.running: list[Request] = []
        self.waiting: list[Request] = []

    def held(self, holder: Holder) -> int:
        return sum(request.weight for request in self.running if request.holder == holder)

    def answered(self, request: Request, inside: bool) -> None:
        request.answers.append(inside)
        if request in self.waiting:
            self.waiting.remove(request)
        if inside:
            self.inside(request)

    def inside(self, request: Request) -> None:
        self.running.append(request)
        assert sum(other.weight for other in self.running) <= self.bounds.concurrency
        assert request.holder == UNNAMED or self.held(request.holder) <= self.bounds.share

    @rule(holder=st.sampled_from(HOLDERS), weight=st.sampled_from([1, 1, 1, 2, 3, 4]))
    def arrive(self, holder: Holder, weight: int) -> None:
        request = Request(holder, min(weight, self.bounds.share))
        if self.places.take(holder, request.weight):
            request.answers.append(True)
            self.inside(request)
            return
        waiting = Waiting(holder, request.weight, lambda inside: self.answered(request, inside))
        request.waiting = waiting
        self.waiting.append(request)
        self.places.line_up(waiting)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.running))
        self.running.remove(request)
        self.places.give_back(request.holder, request.weight)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.waiting))
        assert request.waiting is not None
        self.waiting.remove(request)
        self.places.withdraw(request.waiting)
        self.places.withdraw(request.waiting)  # a second time changes nothing
        assert request.answers == []

    @rule(concurrency=st.integers(1, 12), share=st.integers(1, 12), queue=st.integers(0, 20))
    def resize(self, concurrency: int, share: int, queue: int) -> None:
        self.bounds = Bounds(concurrency, min(share, concurrency), queue, WEIGHTS)
        self.places.resize(self.bounds)

    @invariant()
    def the_books_agree(self) -> None:
        assert self.places.running == sum(request.weight for request in self.running)
        assert self.places.waiting == sum(request.weight for request in self.waiting)
        assert all(request.answers == [True] for request in self.running)
        assert all(request.answers == [] for request in self.waiting)

    @invariant()
    def no_place_is_idle_while_somebody_may_have_it(self) -> None:
        """Only one request, over which the places are counted, may hold some without working."""
        collected = sum(request.waiting.places for request in self.waiting if request.waiting)
        if sum(request.weight for request in self.running) + collected < self.bounds.concurrency:
            first = {request.holder: request for request in reversed(self.waiting)}
            for holder, request in first.items():
                assert holder != UNNAMED
                assert self.held(holder) + request.weight > self.bounds.share
        assert sum(bool(request.waiting and request.waiting.places) for request in self.waiting) <= 1

    def teardown(self) -> None:
        """When all leave, all who wait get in, and nothing is left over."""
        while self.running:
            request = self.running.pop()
            self.places.give_back(request.holder, request.weight)
        assert (self.waiting, self.places.running, self.places.waiting) == ([], 0, 0)
        assert self.places.take(UNNAMED, self.bounds.concurrency)


TestSchedules = Schedules.TestCase
TestSchedules.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


class Backlog:
    """Callers that always have a request in line; each place that becomes free is given to one of them."""

    def __init__(self, concurrency: int, weights: dict[str, int]) -> None:
        self.places = Places(Bounds(concurrency, 1_000_000, 1_000_000, weights))  # no share but that of the turns
        self.order: list[tuple[Holder, int]] = []
        self.running: list[tuple[Holder, int]] = []
        assert self.places.take(("nobody", ""), concurrency)
        self.occupied = concurrency

    def ask(self, holder: Holder, weight: int, again: int = 0) -> None:
        def answer(inside: bool) -> None:
            assert inside
            self.order.append((holder, weight))
            self.running.append((holder, weight))
            if again:
                self.ask(holder, weight, again - 1)

        self.places.line_up(Waiting(holder, weight, answer))

    def free_one(self) -> None:
        """The places of before first; then the oldest request ends."""
        if self.occupied:
            self.occupied -= 1
            self.places.give_back(("nobody", ""), 1)
        else:
            self.places.give_back(*self.running.pop(0))


callers = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("123")), st.integers(1, 6), min_size=2, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(callers, st.fixed_dictionaries({"a": st.integers(1, 5), "b": st.integers(1, 5)}), st.integers(6, 12))
def test_nobody_gets_less_than_his_share_while_others_are_served(
    asking: dict[Holder, int], weights: dict[str, int], concurrency: int
) -> None:
    """In places, as their products' weights count them, no two ever differ by more than their largest requests."""
    backlog = Backlog(concurrency, weights)
    for holder, weight in asking.items():
        backlog.ask(holder, weight, again=100_000)
    got = dict.fromkeys(asking, 0)
    seen = 0
    heaviest = max(asking.values())
    products = {product for product, _ in asking}
    for _ in range(120):
        backlog.free_one()
        for holder, weight in backlog.order[seen:]:
            got[holder] += weight
        seen = len(backlog.order)
        for one, other in itertools.combinations(asking, 2):
            if one[0] == other[0]:
                assert abs(got[one] - got[other]) <= 2 * heaviest
        share = {
            product: Fraction(sum(n for holder, n in got.items() if holder[0] == product), weights.get(product, 1))
            for product in products
        }
        for first, second in itertools.combinations(products, 2):
            slack = Fraction(2 * heaviest, weights.get(first, 1)) + Fraction(2 * heaviest, weights.get(second, 1))
            assert abs(share[first] - share[second]) <= slack


def test_a_heavy_request_gets_in_though_light_ones_keep_coming() -> None:
    backlog = Backlog(8, {})
    for tenant in "12":
        backlog.ask(("a", tenant), 1, again=1_000)
    backlog.ask(("a", "heavy"), 8)
    while (("a", "heavy"), 8) not in backlog.order:
        backlog.free_one()
    assert len(backlog.order) <= 2 * 8 + 8  # eight turns of each, and the eight that were inside


def test_who_collects_places_stops_nobody_meanwhile() -> None:
    backlog = Backlog(8, {})
    backlog.ask(("a", "heavy"), 6)
    backlog.ask(("a", "light"), 1, again=1_000)
    for _ in range(6):
        backlog.free_one()
    assert [holder for holder, _ in backlog.order] == [("a", "light")] * 3  # turn about


def test_one_more_caller_does_not_wait_behind_a_flood() -> None:
    backlog = Backlog(4, {})
    for _ in range(200):
        backlog.ask(("a", "flood"), 1)
    for _ in range(50):
        backlog.free_one()
    backlog.ask(("a", "newcomer"), 1)
    before = len(backlog.order)
    backlog.free_one()
    backlog.free_one()
    assert ("a", "newcomer") in [holder for holder, _ in backlog.order[before:]]


def test_waiting_for_nothing_saves_no_turns_up() -> None:
    backlog = Backlog(2, {})
    backlog.ask(("a", "early"), 1)
    for _ in range(2):  # so that somebody always waits
        backlog.ask(("a", "steady"), 1, again=1_000)
    for _ in range(100):
        backlog.free_one()
    for _ in range(50):
        backlog.ask(("a", "early"), 1)
    before = len(backlog.order)
    for _ in range(20):
        backlog.free_one()
    assert [holder for holder, _ in backlog.order[before:]].count(("a", "steady")) >= 9


@pytest.mark.parametrize(("weight", "turns"), [(1, 10), (4, 16)])
def test_a_products_weight_is_how_often_its_turn_comes(weight: int, turns: int) -> None:
    backlog = Backlog(4, {"gold": weight})
    backlog.ask(("gold", "1"), 1, again=1_000)
    backlog.ask(("plain", "1"), 1, again=1_000)
    for _ in range(20):
        backlog.free_one()
    assert [product for (product, _), _ in backlog.order].count("gold") == turns


def test_a_full_line_gives_way_to_who_has_less_in_it() -> None:
    places = Places(Bounds(1, 1, 3, {}))
    assert places.take(UNNAMED, 1)
    answers: dict[str, list[bool]] = {}

    def ask(name: str, holder: Holder) -> None:
        answers[name] = []
        places.line_up(Waiting(holder, 1, answers[name].append))

    for name in ("first", "one", "two", "three", "four"):
        ask(name, ("a", "flood"))
    assert answers == {"first": [], "one": [], "two": [], "three": [], "four": [False]}
    ask("other", ("a", "other"))
    assert (answers["three"], answers["other"]) == ([], [])  # everybody may have one
    ask("more", ("a", "other"))
    assert (answers["three"], answers["more"]) == ([False], [])
    ask("yet more", ("a", "other"))
    assert answers["yet more"] == [False]  # not more than the others have beyond their first


def test_who_waits_for_his_own_share_only_takes_nobodys_place_in_the_line() -> None:
    places = Places(Bounds(16, 8, 4, {}))
    for name in ("alice", "bob"):
        assert places.take(("a", name), 8)
    answers: dict[str, list[bool]] = {name: [] for name in ("alice", "carol", "dave")}
    places.line_up(Waiting(("a", "alice"), 8, answers["alice"].append))
    for name in ("carol", "dave"):
        places.line_up(Waiting(("a", name), 1, answers[name].append))
    assert answers == {"alice": [], "carol": [], "dave": []}
    places.give_back(("a", "bob"), 8)
    assert answers == {"alice": [], "carol": [True], "dave": [True]}


def test_with_no_queue_nobody_waits() -> None:
    places = Places(Bounds(1, 1, 0, {}))
    assert places.take(("a", "1"), 1)
    answers: list[bool] = []
    places.line_up(Waiting(("a", "2"), 1, answers.append))
    assert answers == [False]


@pytest.mark.parametrize("medium", [2, 8, 64])
def test_who_is_light_keeps_his_share_while_a_heavy_request_collects(medium: int) -> None:
    """Whoever cannot have his few places at once, since another collects, neither starves nor starves others."""
    backlog = Backlog(4_096, {})
    names = [("a", "carol"), ("a", "dave")]
    for holder in names:
        backlog.ask(holder, 1, again=10_000)
    backlog.ask(("a", "alice"), 512)
    backlog.ask(("a", "bob"), medium, again=10_000)
    for freed in range(1, 1_024):
        backlog.free_one()
        got = {holder: sum(n for who, n in backlog.order if who == holder) for holder in [*names, ("a", "bob")]}
        assert all(abs(n - freed / 4) <= 2 * medium for n in got.values()), (freed, got)
    for _ in range(4 * 512 - 1_024 + 4 * medium):
        backlog.free_one()
    assert (("a", "alice"), 512) in backlog.order


def test_a_request_that_could_never_get_in_is_sent_away_and_collects_nothing() -> None:
    """It was prepared before a reload that made the bounds smaller."""
    places = Places(Bounds(4, 2, 4, {}))
    assert places.take(("a", "1"), 2)
    assert places.take(("a", "2"), 2)
    answers: list[bool] = []
    places.line_up(Waiting(UNNAMED, 8, answers.append))
    assert answers == [False]
