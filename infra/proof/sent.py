"""How large the largest script is that the program sends to the first node, in bytes."""

from __future__ import annotations

from cloud_init.delivery import run_command
from infra.targets.azure import artifacts
from plan.azure.model import AzurePlan


def largest_bytes(plan: AzurePlan) -> int:
    """Of the bundle's pieces and what prepares it. The vault's address and the identity's id change little."""
    bundle = artifacts.make(plan).bundle
    prepare = run_command.prepare_script(plan, plan.head, bundle, run_command.SecretSource("", ""))
    return max(len(script.encode()) for script in [prepare, *map(run_command.piece_script, bundle.pieces)])
