"""The stack's network: a VNet with its subnets inside it, their security groups, and one way out for the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import network

from components.scope import StackScope
from plan.azure.security_rules import NsgRule
from plan.azure_network import AddressPlan
from plan.vocabulary import SUBNETS, Segment

_PREFIX_LENGTH = 31
"""Two public addresses; one is used. Partners allow the range, which stays the same when the address changes."""
_ANY = "*"


@dataclass(frozen=True)
class NetworkArgs:
    """`gateway_delegation`: the service that the gateway's subnet is lent to, None for injected classic tiers.

    `zone` is the nodes' zone; what sends their traffic out lives in the same one. `existing_vnet` is the ARM id of a
    VNet of another owner: the subnets are made in it and it is left alone.
    """

    scope: StackScope
    addresses: AddressPlan
    security_rules: Mapping[Segment, tuple[NsgRule, ...]]
    gateway_delegation: str | None
    zone: str | None = None
    existing_vnet: str | None = None


class Network(pulumi.ComponentResource):
    """VNet, security groups and NAT gateway.

    Subnets and security rules are written inside their parents and nowhere else: Azure changes one child of a VNet at a
    time, and a parent that is written again drops children it does not list (docs/facts/azure.md#children-of-a-vnet).
    In an existing VNet the subnets are resources of their own, made one after the other; its owner must not
    list subnets either.
    """

    vnet_id: pulumi.Output[str]
    """ARM id of the VNet."""
    subnet_ids: Mapping[Segment, pulumi.Output[str]]
    """ARM ids of the subnets that exist in this stack."""
    nat_address: pulumi.Output[str]
    """The public address that the world sees the nodes come from."""
    ready: pulumi.Resource
    """What a VM must wait for: without a way out its first boot hangs on package downloads."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:network:Network", name, None, opts)
        self._scope = args.scope
        self._groups = {
            segment: self._security_group(name, segment, args)
            for segment in SUBNETS
            if segment in args.addresses.own_subnets
        }
        self._nat, address = self._way_out(name, args.zone)
        self.nat_address = address.ip_address
        if args.existing_vnet is None:
            self._make_vnet(name, args)
        else:
            self._join_vnet(name, args, args.existing_vnet)
        self.register_outputs({"vnet_id": self.vnet_id, "nat_address": self.nat_address})

    def _make_vnet(self, name: str, args: NetworkArgs) -> None:
        vnet = network.VirtualNetwork(
            f"{name}-vnet",
            resource_group_name=args.scope.resource_group_name,
            virtual_network_name=args.scope.names.vnet,
            location=args.scope.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[str(args.addresses.address_space)]),
            subnets=[
                network.SubnetArgs(name=args.scope.names.subnet(segment), **self._subnet(segment, args))
                for segment in self._groups
            ],
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.vnet_id, self.ready = vnet.id, vnet
        self.subnet_ids = {
            segment: pulumi.Output.concat(vnet.id, "/subnets/", args.scope.names.subnet(segment))
            for segment in self._groups
        }

    def _join_vnet(self, name: str, args: NetworkArgs, vnet_id: str) -> None:
        _, _, _, _, group, _, _, _, vnet_name = vnet_id.split("/")
        made: dict[Segment, network.Subnet] = {}
        for segment in self._groups:
            made[segment] = network.Subnet(
                f"{name}-{segment}-subnet",
                resource_group_name=group,
                virtual_network_name=vnet_name,
                subnet_name=args.scope.names.shared_subnet(segment),
                **self._subnet(segment, args),
                opts=pulumi.ResourceOptions(parent=self, depends_on=list(made.values())[-1:]),
            )
        self.vnet_id, self.ready = pulumi.Output.from_input(vnet_id), list(made.values())[-1]
        self.subnet_ids = {segment: subnet.id for segment, subnet in made.items()}

    def _security_group(self, name: str, segment: Segment, args: NetworkArgs) -> network.NetworkSecurityGroup:
        return network.NetworkSecurityGroup(
            f"{name}-{segment}-nsg",
            resource_group_name=args.scope.resource_group_name,
            network_security_group_name=args.scope.names.nsg(segment),
            location=args.scope.location,
            security_rules=[_rule(rule, args.addresses) for rule in args.security_rules[segment]],
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _way_out(self, name: str, zone: str | None) -> tuple[network.NatGateway, network.PublicIPAddress]:
        scope, child = self._scope, pulumi.ResourceOptions(parent=self)
        zones = [zone] if zone else None
        prefix = network.PublicIPPrefix(
            f"{name}-nat-prefix",
            resource_group_name=scope.resource_group_name,
            public_ip_prefix_name=scope.names.nat_prefix,
            location=scope.location,
            prefix_length=_PREFIX_LENGTH,
            sku=network.PublicIPPrefixSkuArgs(name="Standard"),
            zones=zones,
            tags=scope.tags,
            opts=child,
        )
        address = network.PublicIPAddress(
            f"{name}-nat-address",
            resource_group_name=scope.resource_group_name,
            public_ip_address_name=scope.names.nat_address,
            location=scope.location,
            public_ip_prefix=network.SubResourceArgs(id=prefix.id),
            public_ip_allocation_method="Static",
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            zones=zones,
            tags=scope.tags,
            opts=child,
        )
        nat = network.NatGateway(
            f"{name}-nat",
            resource_group_name=scope.resource_group_name,
            nat_gateway_name=scope.names.nat_gateway,
            location=scope.location,
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            sku=network.NatGatewaySkuArgs(name="Standard"),
            zones=zones,
            tags=scope.tags,
            opts=child,
        )
        return nat, address

    def _subnet(self, segment: Segment, args: NetworkArgs) -> dict[str, Any]:
        """One subnet, complete: what is left out here is taken away from a live subnet by the next update."""
        lent_to = args.gateway_delegation if segment is Segment.GATEWAY else None
        return {
            "address_prefix": str(args.addresses.subnets[segment]),
            "network_security_group": network.NetworkSecurityGroupArgs(id=self._groups[segment].id),
            "nat_gateway": network.SubResourceArgs(id=self._nat.id) if segment is Segment.NODES else None,
            "delegations": [network.DelegationArgs(name="gateway", service_name=lent_to)] if lent_to else None,
            # Without this, security rules do not apply to private endpoints at all.
            "private_endpoint_network_policies": (
                "NetworkSecurityGroupEnabled" if segment is Segment.ENDPOINTS else "Disabled"
            ),
            # Only settable at creation (docs/facts/azure.md#outbound-access). Other subnets have their own way out.
            "default_outbound_access": False,
        }


def _rule(rule: NsgRule, addresses: AddressPlan) -> network.SecurityRuleArgs:
    single = len(rule.ports) == 1
    return network.SecurityRuleArgs(
        name=rule.name,
        priority=int(rule.priority),
        direction=rule.direction,
        access=rule.access,
        protocol=rule.protocol,
        source_address_prefix=_prefix(rule.source, addresses),
        source_port_range=_ANY,
        destination_address_prefix=_prefix(rule.destination, addresses),
        destination_port_range=rule.ports[0] if single else None,
        destination_port_ranges=None if single else list(rule.ports),
        description=rule.description,
    )


def _prefix(segment: Segment | None, addresses: AddressPlan) -> str:
    """A subnet of ours as its range, anything else as Azure's service tag, nobody in particular as `*`."""
    if segment is None:
        return _ANY
    return str(addresses.subnets[segment]) if segment in SUBNETS else segment.value
