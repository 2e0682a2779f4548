"""The decision, played through in time that the test makes: no engine, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from huddle.probe.judge import Action, HealthStatus, Policy, State, judge
from huddle.probe.reading import Answer, Canary, Reading

POLICY = Policy()
STEP = POLICY.interval_s


@dataclass
class World:
    """An engine whose readings the test writes, and the probe's state after each."""

    policy: Policy = POLICY
    state: State = field(default_factory=State)
    at_s: float = 0.0
    work: float = 0.0

    def see(
        self,
        answer: Answer = Answer.GIVEN,
        *,
        moves: bool = False,
        running: int = 0,
        canary: Canary = Canary.NONE,
        passed: float = STEP,
    ) -> tuple[Action, ...]:
        self.at_s += passed
        self.work += 1 if moves else 0
        self.state, due = judge(self.state, Reading(self.at_s, answer, self.work, running, canary), self.policy)
        return due

    def run(self, seconds: float, **reading: object) -> list[Action]:
        return [action for _ in range(round(seconds / STEP)) for action in self.see(**reading)]  # type: ignore[arg-type]

    def serve(self) -> World:
        """An engine that has come up and answered its first canary."""
        self.see(Answer.REFUSED)
        assert self.see() == (Action.CANARY,)
        self.see(moves=True, canary=Canary.COMPLETED)
        self.see()
        assert self.state.health is HealthStatus.HEALTHY
        return self


def test_a_new_engine_is_ready_once_a_canary_has_come_back_and_not_before() -> None:
    world = World()
    world.see(Answer.REFUSED)
    world.see()
    world.see(canary=Canary.ASKED)
    assert (world.state.health, world.state.ready) == (HealthStatus.STARTING, False)
    world.see(moves=True, canary=Canary.COMPLETED)
    world.see()
    assert world.state.ready


def test_a_slow_first_token_is_waited_for_longer_than_a_stall() -> None:
    world = World()
    world.see()
    assert Action.RESTART not in world.run(POLICY.first_token_s - 2 * STEP, canary=Canary.ASKED)
    assert Action.RESTART in world.run(3 * STEP, canary=Canary.ASKED)


def test_requests_without_a_token_are_held_back_then_the_engine_is_ended() -> None:
    world = World().serve()
    due = world.run(POLICY.suspect_after_s, running=8)
    assert (due, world.state.health, world.state.ready) == ([Action.EVIDENCE], HealthStatus.SUSPECT, False)
    assert world.state.reason == "8 requests and no token for 10 s"
    due = world.run(POLICY.unhealthy_after_s - POLICY.suspect_after_s, running=8)
    assert (due, world.state.health) == ([Action.RESTART], HealthStatus.UNHEALTHY)
    assert world.state.reason == "8 requests and no token for 30 s"


def test_a_frozen_engine_that_was_idle_shows_in_the_canary() -> None:
    world = World().serve()
    due = world.run(POLICY.idle_canary_s)
    assert due == [Action.CANARY]
    due = world.run(POLICY.unhealthy_after_s, canary=Canary.ASKED)
    assert due == [Action.EVIDENCE, Action.RESTART]
    assert world.state.reason == "a canary of one token has not come back for 30 s"


def test_a_canary_that_fails_is_asked_again_before_the_engine_is_ended() -> None:
    world = World().serve()
    assert Action.CANARY in world.see(canary=Canary.FAILED)
    due = world.run(POLICY.unhealthy_after_s - STEP)
    assert Action.CANARY in due
    assert due[-1] is Action.RESTART or Action.RESTART in world.see()


def test_a_canary_that_comes_back_after_a_failed_one_clears_it() -> None:
    world = World().serve()
    world.see(canary=Canary.FAILED)
    world.see(moves=True, canary=Canary.COMPLETED)
    assert world.run(POLICY.unhealthy_after_s) == []
    assert world.state.ready


def test_an_engine_that_moves_again_is_ready_only_after_a_while() -> None:
    world = World().serve()
    world.run(POLICY.suspect_after_s, running=8)
    world.see(moves=True, running=8)
    assert not world.state.ready
    world.run(POLICY.healthy_after_s, moves=True, running=8)
    assert world.state.ready


def test_a_server_that_does_not_answer_is_ended() -> None:
    world = World().serve()
    due = world.run(POLICY.unhealthy_after_s, answer=Answer.LATE)
    assert due == [Action.EVIDENCE, Action.RESTART]
    assert world.state.reason == "the engine's server has not answered for 30 s"


PACE = st.floats(0.5, POLICY.longest_gap_s - 1)


def late(world: World, seconds: float, pace: float) -> list[Action]:
    """Readings that are all late, from the first to one at least `seconds` after it."""
    due = [*world.see(Answer.LATE)]
    begin = world.at_s
    while world.at_s - begin < seconds:
        due += world.see(Answer.LATE, passed=pace)
    return due


@given(st.integers(0, 5), PACE)
def test_an_engine_that_is_late_from_the_first_reading_is_ended_as_after_any_stall(refused: int, pace: float) -> None:
    """A probe that starts beside a frozen engine (no refusal first), and a new engine that freezes as it listens."""
    stalled = World().serve().run(POLICY.unhealthy_after_s, answer=Answer.LATE)
    world = World()
    world.run(refused * STEP, answer=Answer.REFUSED)
    assert late(world, POLICY.first_token_s + pace, pace) == stalled == [Action.EVIDENCE, Action.RESTART]
    assert (world.state.health, len(world.state.restarts)) == (HealthStatus.UNHEALTHY, 1)
    assert world.state.reason.startswith("the engine's server has not answered for 1")


@given(st.integers(0, 5), PACE, st.floats(0, 0.99))
def test_an_engine_that_is_late_for_less_than_its_patience_is_left_alone(
    refused: int, pace: float, share: float
) -> None:
    world = World()
    world.run(refused * STEP, answer=Answer.REFUSED)
    assert late(world, POLICY.first_token_s * share - pace, pace) == []
    assert world.state.health is HealthStatus.STARTING


@given(PACE)
def test_the_patience_begins_anew_when_the_engine_does(pace: float) -> None:
    world = World()
    for _ in range(20):
        assert late(world, POLICY.first_token_s - 2 * pace, pace) == []
        assert world.see(Answer.REFUSED) == ()


def test_an_engine_that_is_loading_is_waited_for_without_end() -> None:
    world = World()
    assert world.run(3600, answer=Answer.REFUSED) == []
    assert (world.state.health, world.state.stalled_s) == (HealthStatus.STARTING, 0.0)


@pytest.mark.parametrize("readings", [1, 2, 50])
def test_counters_seen_for_the_first_time_are_no_progress(readings: int) -> None:
    """An engine of long standing that was late, then answers: whether tokens come, a canary must show."""
    world = World(work=1000.0)
    world.run(readings * STEP, answer=Answer.LATE)
    assert world.see() == (Action.CANARY,)
    assert world.state.health is HealthStatus.STARTING
    assert Action.RESTART not in world.run(POLICY.first_token_s - STEP, canary=Canary.ASKED)
    assert world.run(STEP, canary=Canary.ASKED) == [Action.EVIDENCE, Action.RESTART]


def test_an_engine_that_is_starting_is_not_ended() -> None:
    world = World().serve()
    assert world.run(3600, answer=Answer.REFUSED) == []
    assert world.state.health is HealthStatus.STARTING


def test_an_idle_engine_is_asked_now_and_then_and_stays_ready() -> None:
    world = World().serve()
    for _ in range(5):
        assert world.run(POLICY.idle_canary_s) == [Action.CANARY]
        world.see(moves=True, canary=Canary.COMPLETED)
        assert world.state.ready


def test_after_three_restarts_in_an_hour_it_gives_up_once() -> None:
    world = World()
    due: list[Action] = []
    for _ in range(6):
        world.serve()
        due += world.run(POLICY.unhealthy_after_s + 4 * STEP, running=1)
    assert due.count(Action.RESTART) == POLICY.most_restarts
    assert due.count(Action.GIVE_UP) == 3  # once for each new life that froze
    assert world.state.reason.endswith("; 3 restarts within 60 min did not help")


def test_an_hour_later_it_tries_again() -> None:
    world = World()
    for _ in range(4):
        world.serve()
        world.run(POLICY.unhealthy_after_s + STEP, running=1)
    world.run(POLICY.window_s, answer=Answer.REFUSED)
    world.serve()
    assert Action.RESTART in world.run(POLICY.unhealthy_after_s + STEP, running=1)


@given(st.lists(st.floats(POLICY.longest_gap_s + 0.1, 10_000), min_size=1, max_size=50))
def test_a_probe_that_was_asleep_accuses_nobody(gaps: list[float]) -> None:
    world = World().serve()
    for gap in gaps:
        assert world.see(running=3, passed=gap) == ()
    assert world.state.ready


READING = st.tuples(
    st.sampled_from(Answer), st.booleans(), st.integers(0, 3), st.sampled_from(Canary), st.floats(0.1, 14)
)


@given(st.lists(READING, max_size=200))
def test_whatever_happens_it_restarts_seldom_and_only_a_ready_node_is_well(seen: list[tuple]) -> None:
    world, restarts = World(), []
    for answer, moves, running, canary, passed in seen:
        due = world.see(answer, moves=moves, running=running, canary=canary, passed=passed)
        if Action.RESTART in due:
            restarts.append(world.at_s)
            assert not world.state.ready
        assert world.state.ready == (world.state.health is HealthStatus.HEALTHY)
    for start in restarts:
        assert sum(start <= at < start + POLICY.window_s for at in restarts) <= POLICY.most_restarts


@given(st.lists(st.tuples(st.floats(0.1, 3), st.integers(0, 300)), max_size=200))
def test_an_engine_that_moves_between_any_two_readings_is_left_alone(seen: list[tuple[float, int]]) -> None:
    world = World().serve()
    for passed, running in seen:
        assert world.see(moves=True, running=running, passed=passed) == ()
        assert world.state.ready


@given(st.integers(1, 300), st.floats(0.5, 3))
def test_a_freeze_is_always_seen_within_its_deadline_and_a_reading(running: int, passed: float) -> None:
    world = World().serve()
    due: list[Action] = []
    waited = 0.0
    while waited < POLICY.unhealthy_after_s + passed:
        due += world.see(running=running, passed=passed)
        waited += passed
    assert due == [Action.EVIDENCE, Action.RESTART]


@pytest.mark.parametrize("length", [2.0, 6.0, POLICY.suspect_after_s - STEP])
def test_pauses_below_the_first_limit_change_nothing(length: float) -> None:
    world = World().serve()
    for _ in range(20):
        assert world.run(length, running=4) == []
        world.see(moves=True, running=4)
        assert world.state.ready
