"""Parts of a stack in the simulated subscription, put there by hand."""

from __future__ import annotations

from typing import Any

from infra.operations import arm_ids
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Resource, State
from tests.unit.builders import plan

PLAN = plan()
FIRST, SECOND = (node.name for node in PLAN.nodes)
VMS = {name: arm_ids.vm(PLAN, SUBSCRIPTION, name) for name in (FIRST, SECOND)}
GATEWAY = arm_ids.gateway(PLAN, SUBSCRIPTION)
(POOL,) = PLAN.gateway.pools
RULE = f"{arm_ids.group(PLAN, SUBSCRIPTION)}/providers/Microsoft.Insights/scheduledQueryRules"


def put(state: State, resource_id: str, kind: str, **properties: Any) -> None:
    """A resource, as a GET returns it."""
    state.put(Resource(resource_id, f"azure-native:{kind}", properties, location="eastus2"))


def applied(state: State, node: str, bundle: str, **view: Any) -> None:
    """A node's last apply."""
    put(
        state,
        f"{VMS[node]}/runCommands/huddle-apply",
        "compute:VirtualMachineRunCommandByVirtualMachine",
        tags={"bundle": bundle},
        parameters=[{"name": "HUDDLE_ATTEMPT", "value": "3"}],
        instanceView={"executionState": "Succeeded", "exitCode": 0, "output": "", "error": "", **view},
    )


def pooled(state: State, *backends: str) -> None:
    """The gateway's pool, with these nodes in it."""
    services = [{"id": f"{GATEWAY}/backends/{backend}"} for backend in backends]
    put(state, f"{GATEWAY}/backends/{POOL.id}", "apimanagement:Backend", pool={"services": services})
