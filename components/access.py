"""Azure Bastion, through which operators reach the nodes: no node has a public address."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network

from components.scope import StackScope
from plan.vocabulary import BastionSku


@dataclass(frozen=True)
class BastionArgs:
    """`subnet_id` is AzureBastionSubnet, needed by every SKU but Developer, which needs `vnet_id` alone."""

    scope: StackScope
    sku: BastionSku
    tunnel: bool
    subnet_id: pulumi.Input[str] | None
    vnet_id: pulumi.Input[str]


class Bastion(pulumi.ComponentResource):
    """Azure Bastion; bills hourly until deleted, except the Developer SKU (docs/facts/azure.md#bastion)."""

    bastion_id: pulumi.Output[str]
    """ARM id of the Bastion."""

    def __init__(self, name: str, args: BastionArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:access:Bastion", name, None, opts)
        shared = args.sku is BastionSku.DEVELOPER
        if not shared and args.subnet_id is None:
            raise ValueError(f"Bastion {args.sku} needs its own subnet")
        bastion = network.BastionHost(
            f"{name}-host",
            resource_group_name=args.scope.resource_group_name,
            bastion_host_name=args.scope.names.bastion,
            location=args.scope.location,
            sku=network.SkuArgs(name=args.sku.value),
            virtual_network=network.SubResourceArgs(id=args.vnet_id) if shared else None,
            ip_configurations=None if shared else [self._address(name, args)],
            enable_tunneling=args.tunnel,
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.bastion_id = bastion.id
        self.register_outputs({"bastion_id": self.bastion_id})

    def _address(self, name: str, args: BastionArgs) -> network.BastionHostIPConfigurationArgs:
        address = network.PublicIPAddress(
            f"{name}-address",
            resource_group_name=args.scope.resource_group_name,
            public_ip_address_name=args.scope.names.bastion_address,
            location=args.scope.location,
            public_ip_allocation_method="Static",
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self),
        )
        return network.BastionHostIPConfigurationArgs(
            name="bastion",
            subnet=network.SubResourceArgs(id=args.subnet_id),
            public_ip_address=network.SubResourceArgs(id=address.id),
        )
