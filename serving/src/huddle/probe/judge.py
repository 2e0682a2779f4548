"""What readings say of the engine's health, and which rung of the ladder is due. Pure: no clock, no I/O.

The clock of a stall runs only between readings that came in time: a probe (or a machine) that was itself asleep accuses
nobody. Health turns bad after a while and good again after another (hysteresis), so that it does not flap.
"""

from dataclasses import dataclass, field, replace
from enum import UNIQUE, StrEnum, verify

from huddle.probe.reading import Answer, Canary, Reading


@verify(UNIQUE)
class HealthStatus(StrEnum):
    """The engine's health. Others read the values in the verdict's file."""

    STARTING = "starting"
    HEALTHY = "healthy"
    SUSPECT = "suspect"
    UNHEALTHY = "unhealthy"


@verify(UNIQUE)
class Action(StrEnum):
    """What is to be done. The later rungs (free the GPUs, recreate, reboot, quarantine) begin where GIVE_UP is."""

    CANARY = "canary"
    EVIDENCE = "evidence"
    RESTART = "restart"
    GIVE_UP = "give-up"


@dataclass(frozen=True)
class Policy:
    """Seconds, except where it says otherwise.

    10 s without a token are twenty times the longest pause of a healthy engine at 256 streams
    (docs/facts/gpus.md#healthy-engines-under-load); three times that before an engine is ended.
    """

    interval_s: float = 2.0
    suspect_after_s: float = 10.0
    unhealthy_after_s: float = 30.0
    healthy_after_s: float = 6.0
    idle_canary_s: float = 60.0
    canary_timeout_s: float = 60.0
    first_token_s: float = 180.0
    longest_gap_s: float = 15.0
    window_s: float = 3600.0
    most_restarts: int = 3


@dataclass(frozen=True)
class State:
    """What is remembered between readings. `stalled_s`: how long something has been due and did not come.

    `answered`: whether this life of the engine has ever shown its counters.
    """

    health: HealthStatus = HealthStatus.STARTING
    reason: str = "the engine has not answered yet"
    last: Reading | None = None
    answered: bool = False
    stalled_s: float = 0.0
    moving_s: float = 0.0
    idle_s: float = 0.0
    canary_failed: bool = False
    restarts: tuple[float, ...] = field(default=())

    @property
    def ready(self) -> bool:
        """Whether the node may be given requests, as far as the probe can tell."""
        return self.health is HealthStatus.HEALTHY


def judge(state: State, now: Reading, policy: Policy) -> tuple[State, tuple[Action, ...]]:
    """The next state, and what is due."""
    if now.answer is Answer.REFUSED:
        gone = "nobody listens on the engine's port: it is starting"
        return State(HealthStatus.STARTING, gone, now, restarts=state.restarts), ()
    if now.answer is Answer.GIVEN and not state.answered:
        return _first(state, now)
    if state.last is None or state.last.answer is Answer.REFUSED:
        # It listens and is late: from here its patience runs, also when it is the probe that has just started.
        return replace(state, last=now, reason="the engine does not answer yet"), ()
    passed = now.at_s - state.last.at_s
    counted = passed if 0 < passed <= policy.longest_gap_s else 0.0
    return _decide(_measure(state, now, counted), now, policy)


def _first(state: State, now: Reading) -> tuple[State, tuple[Action, ...]]:
    """A server that answers for the first time: whether its engine works, a canary must show."""
    reason = "the engine has answered; waiting for its first token"
    return State(HealthStatus.STARTING, reason, now, answered=True, restarts=state.restarts), (Action.CANARY,)


def _measure(state: State, now: Reading, counted: float) -> State:
    """Let the clocks run."""
    last = state.last
    assert last is not None  # noqa: S101 - judge() has looked
    if now.answer is Answer.LATE:
        # Not to read is not to stand still: remembered is what was last seen.
        held = replace(now, work=last.work, running=last.running)
        return replace(state, last=held, stalled_s=state.stalled_s + counted, moving_s=0.0, idle_s=0.0)
    moved = now.work != last.work or now.canary is Canary.COMPLETED
    if moved:
        return replace(
            state, last=now, stalled_s=0.0, moving_s=state.moving_s + counted, idle_s=0.0, canary_failed=False
        )
    failed = state.canary_failed or now.canary is Canary.FAILED
    if now.running > 0 or now.canary is Canary.ASKED or failed:
        stalled = state.stalled_s + counted
        return replace(state, last=now, stalled_s=stalled, moving_s=0.0, idle_s=0.0, canary_failed=failed)
    return replace(state, last=now, stalled_s=0.0, moving_s=state.moving_s + counted, idle_s=state.idle_s + counted)


def _decide(state: State, now: Reading, policy: Policy) -> tuple[State, tuple[Action, ...]]:
    starting = state.health is HealthStatus.STARTING
    if state.stalled_s >= (policy.first_token_s if starting else policy.unhealthy_after_s):
        return _unhealthy(state, now, policy)
    again = (Action.CANARY,) if state.canary_failed and now.canary is not Canary.ASKED else ()
    if state.stalled_s >= policy.suspect_after_s and state.health is HealthStatus.HEALTHY:
        return replace(state, health=HealthStatus.SUSPECT, reason=_why(state, now)), (Action.EVIDENCE, *again)
    if state.stalled_s > 0:
        return state, again
    if starting and now.work > 0 and state.moving_s > 0:
        return replace(state, health=HealthStatus.HEALTHY, reason="tokens come"), ()
    if state.health in (HealthStatus.SUSPECT, HealthStatus.UNHEALTHY) and state.moving_s >= policy.healthy_after_s:
        return replace(state, health=HealthStatus.HEALTHY, reason="tokens come again"), ()
    if state.idle_s >= policy.idle_canary_s or (state.health is not HealthStatus.HEALTHY and state.idle_s > 0):
        return replace(state, idle_s=0.0), (Action.CANARY,)
    return state, ()


def _unhealthy(state: State, now: Reading, policy: Policy) -> tuple[State, tuple[Action, ...]]:
    """End the engine once; a new one begins with a refused connection, which clears the clocks."""
    why = _why(state, now)
    recent = tuple(at for at in state.restarts if now.at_s - at < policy.window_s)
    if len(recent) >= policy.most_restarts:
        due = (Action.GIVE_UP,) if state.health is not HealthStatus.UNHEALTHY else ()
        reason = f"{why}; {len(recent)} restarts within {policy.window_s / 60:.0f} min did not help"
        return replace(state, health=HealthStatus.UNHEALTHY, reason=reason, restarts=recent), due
    ended = replace(state, health=HealthStatus.UNHEALTHY, reason=why, restarts=(*recent, now.at_s), stalled_s=0.0)
    evidence = () if state.health is HealthStatus.SUSPECT else (Action.EVIDENCE,)
    return ended, (*evidence, Action.RESTART)


def _why(state: State, now: Reading) -> str:
    for_s = f"for {state.stalled_s:.0f} s"
    if now.answer is Answer.LATE:
        return f"the engine's server has not answered {for_s}"
    if now.running > 0:
        return f"{now.running:.0f} requests and no token {for_s}"
    return f"a canary of one token has not come back {for_s}"
