"""What is in Azure before the stack: a VNet, a gateway, DNS zones. Put into the simulated Azure."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from plan.azure.model import AzurePlan
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Resource, Store

_GROUP, _VNET, _SERVICE, _ZONE, _LINK = (
    f"azure-native:{kind}"
    for kind in (
        "resources:ResourceGroup",
        "network:VirtualNetwork",
        "apimanagement:ApiManagementService",
        "privatedns:PrivateZone",
        "privatedns:VirtualNetworkLink",
    )
)


def subscription(plan: AzurePlan) -> str:
    """The subscription that the stack's own ids name; the simulator's when they name none."""
    ids = [each for each in (plan.network.existing_vnet, plan.gateway.existing and plan.gateway.existing.id) if each]
    return ids[0].split("/")[2] if ids else SUBSCRIPTION


def put(plan: AzurePlan, state: Path) -> None:
    """Write it into the simulator's memory."""
    found = list(resources(plan))
    if found:
        with Store(state).transaction() as azure:
            for resource in found:
                if azure.get(resource.id) is None:  # else another stack's rehearsal was here
                    azure.put(resource)


def is_ours(plan: AzurePlan, resource_id: str) -> bool:
    """Whether a simulated resource is the stack's own, and not what stood there before (or came with it)."""
    folded = resource_id.lower()
    for resource in resources(plan):
        came_with_it = f"{resource.id.lower()}/groups/"
        if folded == resource.id.lower() or folded.startswith(came_with_it):
            return False
    return True


def resources(plan: AzurePlan) -> Iterator[Resource]:
    """Existing VNet, zones and gateway with their resource groups."""
    vnet, gateway = plan.network.existing_vnet, plan.gateway.existing
    if vnet is not None:
        yield _group(vnet, plan)
        space = str(plan.addresses.address_space)
        yield _resource(
            vnet,
            _VNET,
            plan,
            {"addressSpace": {"addressPrefixes": [space]}, "subnets": [], "provisioningState": "Succeeded"},
        )
    for zone in plan.network.existing_zones.values():
        yield _group(zone, plan)
        yield _resource(zone, _ZONE, plan, {"provisioningState": "Succeeded"})
        link = {"virtualNetwork": {"id": vnet}, "registrationEnabled": False, "provisioningState": "Succeeded"}
        made = _resource(f"{zone}/virtualNetworkLinks/hub", _LINK, plan, link)
        yield replace(made, refs=[str(vnet).lower()])
    if gateway is not None:
        yield _group(gateway.id, plan)
        host = f"https://{gateway.name.lower()}"
        yield _resource(
            gateway.id,
            _SERVICE,
            plan,
            {
                "sku": {"name": plan.gateway.facts.tier.value, "capacity": plan.gateway.units},
                "publisherName": "Somebody else",
                "publisherEmail": "somebody@example.com",
                "gatewayUrl": f"{host}.azure-api.net",
                "developerPortalUrl": f"{host}.developer.azure-api.net",
                "provisioningState": "Succeeded",
            },
        )
        for group in ("administrators", "developers", "guests"):
            properties = {"name": group, "displayName": group.capitalize(), "builtIn": True, "type": "system"}
            yield _resource(f"{gateway.id}/groups/{group}", "azure-native:apimanagement:Group", plan, properties)


def _group(resource_id: str, plan: AzurePlan) -> Resource:
    return _resource(resource_id.partition("/providers/")[0], _GROUP, plan, {})


def _resource(resource_id: str, token: str, plan: AzurePlan, properties: Mapping[str, object]) -> Resource:
    name = resource_id.rpartition("/")[2]
    body = {"id": resource_id, "name": name, "location": plan.location, **properties}
    return Resource(id=resource_id, token=token, properties=body, location=plan.location, created=time.time())
