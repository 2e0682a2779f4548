"""Private DNS zones that already have the names of ours in an existing VNet: Azure takes one of each name."""

from __future__ import annotations

from collections.abc import Iterator

from infra.operations import api_versions
from infra.operations.arm import Arm
from plan.azure.model import AzurePlan


def in_the_way(arm: Arm, plan: AzurePlan) -> Iterator[str]:
    """Why the next `up` must not run, one sentence for each zone of another owner that is linked to the VNet.

    Only the zones of the VNet's own subscription can be seen.

    Raises:
        infra.operations.arm.ArmError: Azure refused or did not answer.
    """
    vnet, wanted = plan.network.existing_vnet, set(plan.network.private_zones)
    if vnet is None or not wanted:
        return
    subscription = "/".join(vnet.split("/")[:3])
    ours = f"/resourcegroups/{plan.names.resource_group}/".lower()
    for zone in arm.list(f"{subscription}/providers/Microsoft.Network/privateDnsZones", api_versions.PRIVATE_DNS):
        zone_id = str(zone["id"])
        if str(zone["name"]).lower() not in wanted or ours in zone_id.lower():
            continue
        links = arm.list(f"{zone_id}/virtualNetworkLinks", api_versions.PRIVATE_DNS)
        if any(str(link["properties"]["virtualNetwork"]["id"]).lower() == vnet.lower() for link in links):
            yield (
                f"the VNet resolves {zone['name']} in {zone_id} already, and takes no second zone of that name; put "
                "that id into network.private_dns_zones"
            )
