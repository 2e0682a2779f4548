"""Who waits for whom while bundles are applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from components.turns import Turns
from tests.unit.cloud_init.rendered import plans


def waits(serving: Sequence[bool], turns: Turns | int | None) -> list[list[int]]:
    """For each node, the nodes that it waits for; numbers stand for commands."""
    turns, found = turns if isinstance(turns, Turns) else Turns(turns), []
    for number, served in enumerate(serving):
        found.append(list(turns.before()))
        turns.took(number, served_before=served)  # type: ignore[arg-type]
    return found


def test_the_nodes_of_a_new_stack_start_side_by_side() -> None:
    assert waits([False] * 3, 1) == [[], [], []]


def test_nodes_that_serve_leave_one_after_the_other() -> None:
    assert waits([True] * 3, 1) == [[], [0], [1]]


def test_two_at_a_time() -> None:
    assert waits([True] * 5, 2) == [[], [], [0], [1], [2]]


def test_a_new_node_waits_for_nobody_s_first_start_but_in_the_line() -> None:
    assert waits([True, False, True], 1) == [[], [0], [0]]


def test_nodes_that_only_serve_together_switch_together() -> None:
    assert waits([True] * 3, None) == [[], [], []]


def test_a_stack_says_how_many_are_away_and_whether_its_nodes_serve_apart() -> None:
    assert waits([True] * 3, Turns.of(plans()["dev"].serving)) == [[], [0], [1]]
    assert waits([True] * 3, Turns.of(replace(plans()["dev"].serving, max_unavailable=2))) == [[], [], [0]]
    assert waits([True] * 3, Turns.of(plans()["distributed"].serving)) == [[], [], []]


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 4), st.randoms())
def test_never_are_more_away_than_allowed(serving: list[bool], most_away: int, chance: object) -> None:
    """Any order of events: a node may leave once those that it waits for are back."""
    line, back, away = waits(serving, most_away), set[int](), set[int]()
    left = set(range(len(serving)))
    while left or away:
        ready = sorted(number for number in left if back.issuperset(line[number]))
        step = chance.choice([*(("leave", n) for n in ready), *(("return", n) for n in sorted(away))])  # type: ignore[attr-defined]
        what, number = step
        if what == "leave":
            left.remove(number)
            away.add(number)
        else:
            away.remove(number)
            back.add(number)
        assert sum(serving[each] for each in away) <= most_away
