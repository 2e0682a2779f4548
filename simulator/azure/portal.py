"""`python -m simulator.azure.portal`: look into the simulated subscription, and purge what is soft-deleted.

azure-native has no purge. On Azure one uses `infra purge`, which needs a stack, or `az`, for which this stands in.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from simulator.azure.errors import SimulatorError
from simulator.azure.settings import from_environment
from simulator.azure.state.store import OperationRecord, State, Store


def overview(state: State) -> dict[str, Any]:
    """Live resources, soft-deleted names and the last refusals, for people and scripts."""
    return {
        "simulated": True,
        "resources": [
            {"id": item.id, "type": item.key, "location": item.location} for item in state.resources.values()
        ],
        "soft_deleted": [{"name": item.name, "type": item.token, "purge_at": item.purge_at} for item in state.deleted],
        "failures": [
            {"id": item.id, "operation": item.kind, "error": item.error} for item in state.operations if item.error
        ],
    }


def timeline(state: State) -> list[dict[str, Any]]:
    """Every operation with its start and end, in seconds since the first one began."""
    records = [record for record in state.operations if record.end is not None]
    zero = min((record.start for record in records), default=0.0)
    return [_span(record, zero) for record in records]


def _span(record: OperationRecord, zero: float) -> dict[str, Any]:
    end = record.end if record.end is not None else record.start
    return {
        "operation": record.kind,
        "type": record.token,
        "name": record.name,
        "urn": record.urn,
        "start_s": round(record.start - zero, 4),
        "end_s": round(end - zero, 4),
        "status": record.status,
    }


def purge(store: Store, name: str) -> int:
    """Forget soft-deleted resources of this name (a vault's secrets with it); returns how many.

    Raises:
        SimulatorError: nothing of that name is soft-deleted, or it is protected from purging.
    """
    with store.transaction() as state:
        found = [item for item in state.deleted if item.name.lower() == name.lower()]
        if not found:
            names = ", ".join(sorted({item.name for item in state.deleted})) or "nothing"
            raise SimulatorError(f"'{name}' is not soft-deleted in {store.path}; soft-deleted are: {names}")
        if any(item.purge_protected for item in found):
            raise SimulatorError(f"'{name}' has purge protection: it cannot be purged before its retention ends")
        return sum(state.forget(item) for item in found)


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0; 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m simulator.azure.portal", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("show", help="resources, soft-deleted names, refusals (JSON)")
    actions.add_parser("timeline", help="operations with start and end (JSON)")
    actions.add_parser("purge", help="forget a soft-deleted service or vault").add_argument("name")
    options = parser.parse_args(arguments)
    try:
        store = Store(from_environment().state)
        if options.action == "purge":
            count = purge(store, options.name)
            sys.stdout.write(f"simulated: purged '{options.name}' ({count} entries)\n")
        else:
            view = overview(store.read()) if options.action == "show" else timeline(store.read())
            sys.stdout.write(f"{json.dumps(view, indent=2)}\n")
    except SimulatorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
