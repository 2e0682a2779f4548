"""Private DNS zones, so that names of private endpoints resolve to their private addresses inside the VNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import privatedns

from components.scope import StackScope

_GLOBAL = "global"
"""The only location that private DNS knows."""


@dataclass(frozen=True)
class PrivateDnsArgs:
    """`zones` are zone names such as privatelink.vaultcore.azure.net."""

    scope: StackScope
    vnet_id: pulumi.Input[str]
    zones: tuple[str, ...]


class PrivateDns(pulumi.ComponentResource):
    """Zones and their links to the VNet."""

    zone_ids: Mapping[str, pulumi.Output[str]]
    """ARM ids by zone name; known once the zone is linked, so that whoever waits for one can also resolve in it."""

    def __init__(self, name: str, args: PrivateDnsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:private_dns:PrivateDns", name, None, opts)
        self.zone_ids = {zone: self._linked(name, zone, args) for zone in args.zones}
        self.register_outputs({"zone_ids": self.zone_ids})

    def _linked(self, name: str, zone: str, args: PrivateDnsArgs) -> pulumi.Output[str]:
        scope, child = args.scope, pulumi.ResourceOptions(parent=self)
        made = privatedns.PrivateZone(
            f"{name}-{zone}",
            resource_group_name=scope.resource_group_name,
            private_zone_name=zone,
            location=_GLOBAL,
            tags=scope.zone_tags,
            opts=child,
        )
        link = privatedns.VirtualNetworkLink(
            f"{name}-{zone}-link",
            resource_group_name=scope.resource_group_name,
            private_zone_name=made.name,
            virtual_network_link_name=scope.names.vnet,
            location=_GLOBAL,
            virtual_network=privatedns.SubResourceArgs(id=args.vnet_id),
            # Nodes are named in /etc/hosts by the plan; VMs that register themselves would only add stale records.
            registration_enabled=False,
            tags=scope.zone_tags,
            opts=child,
        )
        return pulumi.Output.all(made.id, link.id).apply(lambda ids: str(ids[0]))
