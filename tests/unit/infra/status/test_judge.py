"""What a stack's state means, for states that are rare: judged from plain data."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from components.attempts import SUCCEEDED
from infra.operations import power
from infra.status.judge import judge
from infra.status.seen import LastApply, Seen, SeenNode
from plan.azure.model import AzurePlan
from tests.unit.builders import plan


def seen(of: AzurePlan, *gone: str, **first: str) -> Seen:
    """All is well, but for pools that are gone and what is said of the first node."""
    facts = {"provisioning": SUCCEEDED, "power": power.RUNNING}
    apply = LastApply(SUCCEEDED, "5" * 64)
    nodes = [SeenNode(node.name, **facts, apply=apply) for node in of.nodes]
    nodes[0] = SeenNode(of.nodes[0].name, **{**facts, **first}, apply=apply)
    pools = {pool.id: tuple(member.id for member in pool.members) for pool in of.gateway.pools if pool.id not in gone}
    return Seen(datetime(2026, 11, 29, tzinfo=UTC), stand_in=True, nodes=tuple(nodes), pools=pools, firing=())


def reasons(of: AzurePlan, now: Seen) -> list[str]:
    return [reason for node in judge(of, now, "5" * 64).nodes for reason in node.reasons]


def test_a_pool_that_is_gone_is_missed_though_its_nodes_are_in_another() -> None:
    products = {name: {"display_name": name} for name in ("one", "two")}
    of = plan("dev", gateway={"affinity": "product", "products": products})
    first, *_ = of.gateway.pools
    assert len(of.gateway.pools) > 1 and reasons(of, seen(of)) == []
    assert reasons(of, seen(of, first.id)) == [
        f"{node.name} is not in {first.id} of the gateway; run `make up STACK=dev`" for node in of.nodes
    ]


@pytest.mark.parametrize("state", ["Creating", "Updating", "Deleting"])
def test_nobody_is_told_to_change_what_is_being_changed(state: str) -> None:
    (reason,) = reasons(plan(), seen(plan(), provisioning=state))
    assert reason.endswith(f"is being changed ({state}); ask again when that has ended")


def test_a_node_that_starts_is_not_started_again() -> None:
    (reason,) = reasons(plan(), seen(plan(), power=power.STARTING))
    assert reason.endswith("is starting; ask again in a minute")
