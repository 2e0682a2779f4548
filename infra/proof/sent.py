"""How large the largest script is that the program sends to the first node, in bytes."""

from __future__ import annotations

from cloud_init.delivery import run_command
from infra.targets.azure import artifacts
from plan.azure.model import AzurePlan


def largest_bytes(plan: AzurePlan) -> int:
    """Of the bundle's pieces and the apply; the vault's address and the identity's id change it by a few bytes."""
    bundle = artifacts.make(plan).bundle
    apply = run_command.script(plan, plan.head, bundle, vault_uri="", identity_client_id="")
    return max(len(script.encode()) for script in [apply, *map(run_command.piece_script, bundle.pieces)])
