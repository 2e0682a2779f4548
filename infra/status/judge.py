"""From what was seen to a verdict: which nodes serve, in which pools, how the last roll went. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify
from urllib.parse import urlsplit

from components.attempts import FAILED, SUCCEEDED
from infra.operations import power
from infra.operations.arm_alerts import Firing
from infra.status.seen import LastApply, Seen, SeenNode
from plan.azure.gateway_model import BackendPlan
from plan.azure.model import AzurePlan
from plan.vocabulary import Delivery

_CHANGING = frozenset({"Creating", "Updating", "Deleting"})
_UNDER_WAY = frozenset({"Creating", "Pending", "Running", "Updating"})


@verify(UNIQUE)
class Readiness(StrEnum):
    """What the last apply said of a node.

    `NOT_TOLD`: its bundle comes over SSH, of which Azure knows nothing, or Azure's word for the run says nothing.
    """

    SERVING = "serving"
    APPLYING = "applying"
    ROLLED_BACK = "rolled-back"
    FAILED = "failed"
    NEVER = "never-applied"
    NOT_TOLD = "not-told"


@verify(UNIQUE)
class Result(StrEnum):
    """How a roll went. `PARTIAL`: none failed or is under way, and not each node is known to have its bundle."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RUNNING = "running"
    PARTIAL = "partial"


@dataclass(frozen=True)
class Node:
    """A node with its verdict. `bundle` is the digest that it serves, as far as told; `None` where it is not.

    `pools` holds the pools that it is in; `in_service` is None for a node that no pool is meant to hold. `reasons` say
    why it does not serve, with the next step.
    """

    seen: SeenNode
    readiness: Readiness
    bundle: str | None
    pools: tuple[str, ...]
    in_service: bool | None
    drained: bool
    reasons: tuple[str, ...]

    @property
    def serves(self) -> bool:
        """Whether nothing that the control plane tells speaks against it."""
        return not self.reasons


@dataclass(frozen=True)
class Turn:
    """A node's place in a roll."""

    node: str
    apply: LastApply


@dataclass(frozen=True)
class Roll:
    """The last applies of all nodes, in the order in which they began."""

    bundle: str
    turns: tuple[Turn, ...]
    result: Result

    @property
    def began(self) -> str:
        """When the first node's turn began."""
        return self.turns[0].apply.began

    @property
    def ended(self) -> str:
        """When the last turn ended; empty while one runs."""
        ends = [turn.apply.ended for turn in self.turns]
        return max(ends) if all(ends) else ""


@dataclass(frozen=True)
class Status:
    """The verdict of a whole stack. `wanted` is the bundle that this checkout would apply."""

    stack: str
    seen: Seen
    nodes: tuple[Node, ...]
    wanted: str
    roll: Roll | None

    @property
    def serves(self) -> bool:
        """Whether every node does."""
        return all(node.serves for node in self.nodes)

    @property
    def firing(self) -> tuple[Firing, ...]:
        """Alarms, the worst first."""
        return tuple(sorted(self.seen.firing or (), key=lambda one: (one.severity, one.since, one.rule)))


def judge(plan: AzurePlan, seen: Seen, wanted: str) -> Status:
    """The verdict."""
    backends = {urlsplit(one.url).hostname: one for one in plan.gateway.backends}
    of = {node.name: backends.get(str(node.address)) for node in plan.nodes}
    nodes = tuple(_node(plan, node, of[node.name], seen.pools) for node in seen.nodes)
    return Status(plan.stack, seen, nodes, wanted, _roll(seen.nodes))


def _node(plan: AzurePlan, seen: SeenNode, backend: BackendPlan | None, pools: Mapping[str, tuple[str, ...]]) -> Node:
    held = tuple(sorted(pool for pool, members in pools.items() if backend is not None and backend.id in members))
    readiness = _readiness(plan, seen)
    bundle = _bundle(seen.apply, readiness)
    reasons = [*_of_vm(plan, seen), *_of_apply(plan, seen, readiness)]
    if backend is not None and backend.drained and not held:
        reasons.append(f"{seen.name} is in no pool of the gateway; `gateway.drain` names it")
    elif missing := _missing(plan, backend, held):
        where = "in no pool" if not held else f"not in {' and '.join(missing)}"
        reasons.append(f"{seen.name} is {where} of the gateway; run `make up STACK={plan.stack}`")
    in_service = None if backend is None else bool(held)
    drained = backend is not None and backend.drained
    return Node(seen, readiness, bundle, held, in_service, drained, tuple(reasons))


def _missing(plan: AzurePlan, backend: BackendPlan | None, held: tuple[str, ...]) -> list[str]:
    """The pools that should hold a node and do not; one that is gone holds nobody."""
    wanted = [pool for pool in plan.gateway.pools if backend and backend.id in {one.id for one in pool.members}]
    return [pool.id for pool in wanted if pool.id not in held]


def _readiness(plan: AzurePlan, seen: SeenNode) -> Readiness:
    apply = seen.apply
    if plan.access.delivery is not Delivery.RUN_COMMAND:
        return Readiness.NOT_TOLD
    if apply is None:
        return Readiness.NEVER
    if apply.state == SUCCEEDED:
        return Readiness.SERVING
    if apply.state in _UNDER_WAY:
        return Readiness.APPLYING
    if apply.state not in FAILED:
        return Readiness.NOT_TOLD
    return Readiness.ROLLED_BACK if apply.told.get("state") == Readiness.ROLLED_BACK.value else Readiness.FAILED


def _bundle(apply: LastApply | None, readiness: Readiness) -> str | None:
    """The digest that the node serves: its own words first, else what a run that went well was given."""
    if apply is None:
        return None
    if "bundle" in apply.told:
        found = apply.told["bundle"]
        return str(found) if found else None
    return apply.bundle or None if readiness is Readiness.SERVING else None


def _of_vm(plan: AzurePlan, seen: SeenNode) -> list[str]:
    if not seen.provisioning:
        return [f"{seen.name} has no VM; run `make up STACK={plan.stack}`"]
    if seen.provisioning in _CHANGING:
        return [f"the VM of {seen.name} is being changed ({seen.provisioning}); ask again when that has ended"]
    found = []
    if seen.provisioning != SUCCEEDED:
        found.append(f"the VM of {seen.name} is provisioned as {seen.provisioning}; run `make up STACK={plan.stack}`")
    if seen.power == power.STARTING:
        found.append(f"{seen.name} is starting; ask again in a minute")
    elif seen.power != power.RUNNING:
        found.append(f"{seen.name} is {seen.power}; run `infra start -s {plan.stack}`")
    return found


def _of_apply(plan: AzurePlan, seen: SeenNode, readiness: Readiness) -> list[str]:
    if not seen.provisioning:
        return []
    said = f": {seen.apply.said}" if seen.apply is not None and seen.apply.said else ""
    again = f"; run `make up STACK={plan.stack}`"
    match readiness:
        case Readiness.NEVER:
            return [f"{seen.name} was never given a bundle{again}"]
        case Readiness.APPLYING:
            return [f"{seen.name} is applying a bundle"]
        case Readiness.ROLLED_BACK:
            return [f"{seen.name} went back to its bundle before, since the new one failed{said}{again}"]
        case Readiness.FAILED:
            return [f"the last apply of {seen.name} failed{said}{again}"]
        case Readiness.NOT_TOLD if seen.apply is not None:
            return [f"Azure calls the last apply of {seen.name} {seen.apply.state}, which tells nothing{again}"]
        case Readiness.SERVING | Readiness.NOT_TOLD:
            return []


def _roll(nodes: Sequence[SeenNode]) -> Roll | None:
    turns = [Turn(node.name, node.apply) for node in nodes if node.apply is not None and node.apply.began]
    if not turns:
        return None
    turns.sort(key=lambda turn: (turn.apply.began, turn.node))
    return Roll(turns[-1].apply.bundle, tuple(turns), _result(turns, len(nodes)))


def _result(turns: Sequence[Turn], nodes: int) -> Result:
    states = {turn.apply.state for turn in turns}
    if states & FAILED:
        return Result.FAILED
    if states & _UNDER_WAY:
        return Result.RUNNING
    same = len({turn.apply.bundle for turn in turns}) == 1
    return Result.SUCCEEDED if states == {SUCCEEDED} and same and len(turns) == nodes else Result.PARTIAL
