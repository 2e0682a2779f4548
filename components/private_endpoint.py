"""A private endpoint: an Azure service's address inside the VNet, and its name in a private DNS zone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_azure_native import network

from components.scope import StackScope

_GROUP = "default"
"""An endpoint has one DNS zone group; Azure's own name for it."""


@dataclass(frozen=True)
class PrivateEndpointArgs:
    """`endpoint_name` says whose endpoint it is; `group_id` is the service's word for it (`vault`, `Gateway`, `file`).

    `after`: other endpoints to wait for, since Azure changes one child of a VNet at a time.
    """

    scope: StackScope
    endpoint_name: str
    subnet_id: pulumi.Input[str]
    target_id: pulumi.Input[str]
    group_id: str
    zone_id: pulumi.Input[str]
    after: Sequence[pulumi.Resource] = field(default=())


class PrivateEndpoint(pulumi.ComponentResource):
    """The endpoint and its DNS records, which Azure writes itself."""

    ready: pulumi.Resource
    """What to wait for before the service's name resolves to its private address."""

    def __init__(self, name: str, args: PrivateEndpointArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:private_endpoint:PrivateEndpoint", name, None, opts)
        scope = args.scope
        endpoint = network.PrivateEndpoint(
            f"{name}-endpoint",
            resource_group_name=scope.resource_group_name,
            private_endpoint_name=scope.names.endpoint(args.endpoint_name),
            location=scope.location,
            subnet=network.SubnetArgs(id=args.subnet_id),
            private_link_service_connections=[
                network.PrivateLinkServiceConnectionArgs(
                    name=args.endpoint_name, private_link_service_id=args.target_id, group_ids=[args.group_id]
                )
            ],
            tags=scope.tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(args.after)),
        )
        self.ready = network.PrivateDnsZoneGroup(
            f"{name}-dns",
            resource_group_name=scope.resource_group_name,
            private_endpoint_name=endpoint.name,
            private_dns_zone_group_name=_GROUP,
            private_dns_zone_configs=[
                network.PrivateDnsZoneConfigArgs(name=args.endpoint_name, private_dns_zone_id=args.zone_id)
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.register_outputs({})
