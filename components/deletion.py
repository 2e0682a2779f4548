"""What goes with what when a stack is destroyed: Azure itself deletes a service's entities and a group's contents.

What Pulumi deletes one by one can be refused one by one: a product that somebody subscribed to in the portal, a subnet
whose service link outlives its service. So each such resource is marked `deleted_with` its owner, and Azure, which
orders and retries inside one deletion, gets the owner (docs/facts/azure.md#deletion).
"""

from __future__ import annotations

from collections.abc import Callable

import pulumi
from pulumi_azure_native import apimanagement, resources

_PACKAGE = "azure-native:"
_GATEWAY = f"{_PACKAGE}apimanagement:"
_SERVICE = f"{_GATEWAY}ApiManagementService"
_DELETED_BY_ITSELF = (
    f"{_PACKAGE}compute:VirtualMachine",  # first of all, since it costs most
    _SERVICE,
    f"{_PACKAGE}authorization:RoleAssignment",
    f"{_PACKAGE}monitor:DiagnosticSetting",
)
"""An extension of a resource may outlive it and come back with its name; a VM and the gateway are worth the wait."""


def with_group(group: resources.ResourceGroup) -> pulumi.ResourceTransformation:
    """Leave what lives in the group to its deletion. Only for stacks that own all they are in: in a VNet of others a
    subnet must be empty before it can go, long before the group does.
    """
    return _deleted_with(group, lambda kind: not kind.startswith(_GATEWAY) and kind not in _DELETED_BY_ITSELF)


def with_service(service: apimanagement.ApiManagementService) -> pulumi.ResourceTransformation:
    """Leave the entities of a gateway of our own to its deletion."""
    return _deleted_with(service, lambda kind: kind.startswith(_GATEWAY) and kind != _SERVICE)


def _deleted_with(owner: pulumi.Resource, goes_along: Callable[[str], bool]) -> pulumi.ResourceTransformation:
    def mark(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult | None:
        if not args.type_.startswith(_PACKAGE) or not goes_along(args.type_) or args.opts.deleted_with is not None:
            return None
        marked = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(deleted_with=owner))
        return pulumi.ResourceTransformationResult(args.props, marked)

    return mark
