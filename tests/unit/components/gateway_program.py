"""The gateway component, run and recorded: what its tests have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pulumi
from pulumi_azure_native import network

from components.gateway import Gateway, GatewayArgs
from plan.azure.model import AzurePlan
from plan.azure_facts import GATEWAY_TIERS
from plan.vocabulary import GatewayInbound, GatewayTier
from tests.unit.azure_outputs import OUTPUTS, Outputs
from tests.unit.builders import arm_id, plan, scope, secret
from tests.unit.recording import Recorded, Recording, run_program

APIM = "azure-native:apimanagement:"
SERVICE, SUBSCRIPTION = "apimanagement:ApiManagementService", "apimanagement:Subscription"
COMBINATIONS = [(facts.tier, inbound) for facts in GATEWAY_TIERS.values() for inbound in facts.inbound]
CLASSIC = (GatewayTier.DEVELOPER, GatewayTier.PREMIUM)
VNET = arm_id("Microsoft.Network/virtualNetworks", "vnet")
PRIVATE_ADDRESS = "10.0.1.4"
TWO_PRODUCTS: dict[str, Any] = {
    "small": {"display_name": "Small", "subscriptions": ["web", "app"], "requests_per_minute": 7, "published": False},
    "large": {
        "display_name": "Large",
        "description": "Much.",
        "terms": "Be kind.",
        "approval_required": True,
        "visible_to_guests": True,
        "subscriptions": [{"name": "jobs", "owner": "Ada Lovelace"}],
    },
}


def service_outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**OUTPUTS[SERVICE](inputs), "privateIPAddresses": [PRIVATE_ADDRESS]}


def build(
    built: AzurePlan, preview: bool = False, calls: Mapping[str, Outputs] | None = None, **changes: Any
) -> Recording:
    def program() -> Mapping[str, Any]:
        ready = network.PublicIPPrefix("ready", resource_group_name="group", public_ip_prefix_name="ready")
        args: dict[str, Any] = {
            "scope": scope(built),
            "gateway": built.gateway,
            "subnet_id": f"{VNET}/subnets/gateway",
            "backend_key": secret("backend-key"),
            "insights_id": arm_id("Microsoft.Insights/components", "insights"),
            "insights_connection_string": secret("insights"),
            "workspace_id": arm_id("Microsoft.OperationalInsights/workspaces", "logs"),
            "endpoint_subnet_id": f"{VNET}/subnets/endpoints",
            "gateway_zone_id": arm_id("Microsoft.Network/privateDnsZones", "privatelink.azure-api.net"),
            "endpoint_after": [ready],
            **changes,
        }
        gateway = Gateway("gateway", GatewayArgs(**args))
        return {
            "url": gateway.gateway_url,
            "portal": gateway.portal_url,
            "name": gateway.service_name,
            "keys": pulumi.Output.from_input(dict(gateway.product_keys)),
            "secondary": pulumi.Output.from_input(dict(gateway.secondary_keys)),
        }

    return run_program(program, built.stack, preview, outputs={SERVICE: service_outputs}, calls=calls)


@cache
def recorded(tier: GatewayTier, inbound: GatewayInbound, preview: bool = False) -> Recording:
    return build(plan(gateway={"tier": tier.value, "inbound": inbound.value, "products": TWO_PRODUCTS}), preview)


def standard(preview: bool = False) -> Recording:
    return recorded(GatewayTier.STANDARD_V2, GatewayInbound.PUBLIC, preview)


def written(recording: Recording) -> list[Recorded]:
    """Everything that is written into the service, in the order of registration."""
    return [
        resource
        for resource in recording.resources
        if resource.type.startswith(APIM) and resource.type != f"azure-native:{SERVICE}"
    ]
