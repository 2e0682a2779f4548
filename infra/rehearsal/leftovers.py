"""What a destroyed stack left in the simulated Azure, asked as `infra leaks` and `infra purge` ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from infra import program
from infra.operations import arm, leaks, stack_state
from infra.operations import arm_subscription as azure_side
from infra.operations.leaks import Leak
from infra.rehearsal import existing
from infra.rehearsal.sandbox import Sandbox
from plan.azure.model import AzurePlan
from simulator.azure.arm import serve
from simulator.azure.state.store import Store

_LOCKED = frozenset(kind.value for kind in azure_side.Locked)


def purge(sandbox: Sandbox) -> None:
    """Free the names of an unprotected stack; what a protected one deleted can be restored, and stays."""
    plan = _plan(sandbox)
    if plan.protect:
        return
    chosen = existing.subscription(plan)
    with azure_of(sandbox) as azure:
        for each in list(azure_side.soft_deleted(azure, chosen)):
            if leaks.is_name_of(plan, each):
                azure_side.purge(azure, chosen, each)


def find(sandbox: Sandbox) -> tuple[Leak, ...]:
    """What is left of the stack."""
    plan = _plan(sandbox)
    chosen = existing.subscription(plan)
    owner = leaks.Owner(plan, stack_state.ids_in(json.dumps(sandbox.resources())))
    with azure_of(sandbox) as azure:
        return leaks.find(
            [owner],
            azure_side.resources(azure, chosen),
            azure_side.grants(azure, chosen),
            azure_side.soft_deleted(azure, chosen),
        )


def told(found: tuple[Leak, ...]) -> str:
    """`0 resources left, 0 names locked`."""
    locked = sum(leak.kind in _LOCKED for leak in found)
    return f"{len(found) - locked} resources left, {locked} names locked"


def problem(sandbox: Sandbox, found: tuple[Leak, ...]) -> str | None:
    """What should not be left, as a sentence. Azure keeps the names of a protected stack; no setting frees them."""
    kept = _LOCKED if _plan(sandbox).protect else frozenset()
    left = [f"{leak.kind} {leak.name}" for leak in found if leak.kind not in kept]
    return f"nothing should be left, but Azure still has {', '.join(left)}" if left else None


def _plan(sandbox: Sandbox) -> AzurePlan:
    return program.load_azure_plan(sandbox.stack_name, sandbox.directory)


@contextmanager
def azure_of(sandbox: Sandbox) -> Iterator[arm.Arm]:
    """ARM's stand-in over the sandbox's simulated subscription."""
    server = serve(Store(sandbox.azure_state))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        with arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
