"""Resource groups: deleting one deletes everything in it."""

# ruff: noqa: ARG002 - `Rules` says what each hook is for and gets
from __future__ import annotations

from simulator.azure.rules.base import Op, Rules, imitates


@imitates("resources:ResourceGroup")
class ResourceGroup(Rules):
    """Microsoft.Resources/resourceGroups."""

    typical_seconds = 2.0

    def outputs(self, op: Op, outputs: dict[str, object]) -> None:
        """ARM nests the provisioning state here."""
        outputs["properties"] = {"provisioningState": "Succeeded"}
        outputs["type"] = "Microsoft.Resources/resourceGroups"
