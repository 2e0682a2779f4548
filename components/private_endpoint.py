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

    `zone_id` is None where the organisation's Azure Policy writes the endpoint's name. `after`: other endpoints to wait
    for, since Azure changes one child of a VNet at a time.
    """

    scope: StackScope
    endpoint_name: str
    subnet_id: pulumi.Input[str]
    target_id: pulumi.Input[str]
    group_id: str
    zone_id: pulumi.Input[str] | None
    after: Sequence[pulumi.Resource] = field(default=())


class PrivateEndpoint(pulumi.ComponentResource):
    """The endpoint and its DNS records, which Azure writes itself."""

    ready: pulumi.Resource
    """What to wait for before the service's name resolves to its private address. With Azure Policy as the writer that
    comes minutes later (Microsoft's page "Private Link and DNS integration at scale"), which nodes wait for themselves.
    """

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
        self.ready = endpoint if args.zone_id is None else self._names(name, args, endpoint, args.zone_id)
        self.register_outputs({})

    def _names(
        self, name: str, args: PrivateEndpointArgs, endpoint: network.PrivateEndpoint, zone_id: pulumi.Input[str]
    ) -> network.PrivateDnsZoneGroup:
        return network.PrivateDnsZoneGroup(
            f"{name}-dns",
            resource_group_name=args.scope.resource_group_name,
            private_endpoint_name=endpoint.name,
            private_dns_zone_group_name=_GROUP,
            private_dns_zone_configs=[
                network.PrivateDnsZoneConfigArgs(name=args.endpoint_name, private_dns_zone_id=zone_id)
            ],
            opts=pulumi.ResourceOptions(parent=self),
        )
