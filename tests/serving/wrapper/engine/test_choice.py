"""Who gets the next request: never anybody with more of them than another, and equals in turn."""

from hypothesis import given
from hypothesis import strategies as st

from huddle.wrapper.engine.choice import choose

LOADS = st.lists(st.none() | st.integers(0, 5), max_size=8)


@given(LOADS, st.integers(-1, 7))
def test_it_has_the_least_load_of_those_that_may(loads: list[int | None], last: int) -> None:
    chosen = choose(loads, last)
    allowed = [load for load in loads if load is not None]
    assert (chosen is None) == (not allowed)
    if chosen is not None:
        assert loads[chosen] == min(allowed)


@given(LOADS, st.integers(-1, 7))
def test_equals_take_turns(loads: list[int | None], last: int) -> None:
    """As long as no load changes, each of the least loaded gets one request before any gets a second."""
    least = min((load for load in loads if load is not None), default=None)
    equals = [place for place, load in enumerate(loads) if load is not None and load == least]
    chosen = []
    for _ in equals:
        last = choose(loads, last)
        chosen.append(last)
    assert sorted(chosen) == equals


@given(st.integers(1, 8), st.lists(st.booleans(), max_size=60), st.randoms(use_true_random=False))
def test_no_request_goes_where_more_are_under_way(engines: int, steps: list[bool], random) -> None:
    """Over any schedule of arrivals (True) and ends (False); with arrivals alone no two differ by more than one."""
    loads, last = [0] * engines, -1
    for arrives in steps:
        if arrives:
            last = choose(loads, last)
            assert loads[last] == min(loads)
            loads[last] += 1
        elif busy := [place for place, load in enumerate(loads) if load]:
            loads[random.choice(busy)] -= 1
    if all(steps):
        assert max(loads) - min(loads) <= 1
