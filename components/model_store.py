"""Where model files live: one disk that every node attaches, or an NFS share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_azure_native import compute, storage

from components.private_endpoint import PrivateEndpoint, PrivateEndpointArgs
from components.scope import StackScope
from plan.azure.model import ModelStorePlan
from plan.azure_facts import SHARED_DISKS
from plan.vocabulary import DiskSku, ModelStoreKind

_ZONE_REDUNDANT = (DiskSku.PREMIUM_ZRS, DiskSku.STANDARD_SSD_ZRS)


@dataclass(frozen=True)
class ModelStoreArgs:
    """`zone` is the nodes' zone; `file_zone_id` the private DNS zone of Azure Files, for `azure-files` only.

    `endpoint_after`: other private endpoints of the same subnet, to be made one after the other.
    """

    scope: StackScope
    store: ModelStorePlan
    zone: str | None
    endpoint_subnet_id: pulumi.Input[str]
    file_zone_id: pulumi.Input[str] | None
    endpoint_after: Sequence[pulumi.Resource] = field(default=())


class ModelStore(pulumi.ComponentResource):
    """The shared disk (`disk_id`) or the share (`nfs_source`); with `protect`, Pulumi refuses to delete either."""

    disk_id: pulumi.Output[str] | None
    """ARM id of the disk that nodes attach; None for a share."""
    nfs_source: pulumi.Output[str] | None
    """What nodes mount, as the plan names it; None for a disk."""
    ready: list[pulumi.Resource]
    """What must exist before a node can mount a share; empty for a disk, which its VM waits for by itself."""

    def __init__(self, name: str, args: ModelStoreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:model_store:ModelStore", name, None, opts)
        self.disk_id, self.nfs_source, self.ready = None, None, []
        match args.store.kind:
            case ModelStoreKind.SHARED_DISK:
                self.disk_id = self._disk(name, args).id
            case ModelStoreKind.AZURE_FILES:
                self.nfs_source = self._share(name, args)
        self.register_outputs({"disk_id": self.disk_id, "nfs_source": self.nfs_source})

    def _disk(self, name: str, args: ModelStoreArgs) -> compute.Disk:
        """Reached through its VMs only: no export, no upload, no bursting or caching, which shared disks lack."""
        store = args.store
        own = SHARED_DISKS[store.sku].own_performance
        return compute.Disk(
            f"{name}-disk",
            resource_group_name=args.scope.resource_group_name,
            disk_name=args.scope.names.model_disk,
            location=args.scope.location,
            # A zone-redundant disk is in all zones and takes none.
            zones=[args.zone] if args.zone and store.sku not in _ZONE_REDUNDANT else None,
            sku=compute.DiskSkuArgs(name=store.sku.value),
            creation_data=compute.CreationDataArgs(create_option="Empty"),
            disk_size_gb=store.size_gib,
            max_shares=store.max_shares,
            disk_iops_read_write=store.iops if own else None,
            disk_m_bps_read_write=store.mbps if own else None,
            network_access_policy="DenyAll",
            public_network_access="Disabled",
            tags=args.scope.tags,
            opts=pulumi.ResourceOptions(parent=self, protect=args.scope.protect),
        )

    def _share(self, name: str, args: ModelStoreArgs) -> pulumi.Output[str]:
        """NFS 4.1, whose only access control is the network: hence no public access and a private endpoint."""
        scope, kept = args.scope, pulumi.ResourceOptions(parent=self, protect=args.scope.protect)
        account = storage.StorageAccount(
            f"{name}-account",
            resource_group_name=scope.resource_group_name,
            account_name=scope.names.storage_account,
            location=scope.location,
            kind="FileStorage",
            sku=storage.SkuArgs(name="Premium_LRS"),
            # "Secure transfer required" means HTTPS or SMB encryption; NFS has neither and is refused with it.
            enable_https_traffic_only=False,
            minimum_tls_version="TLS1_2",
            public_network_access="Disabled",
            network_rule_set=storage.NetworkRuleSetArgs(default_action=storage.DefaultAction.DENY, bypass="None"),
            allow_blob_public_access=False,
            allow_shared_key_access=False,
            tags=scope.tags,
            opts=kept,
        )
        share = storage.FileShare(
            f"{name}-share",
            resource_group_name=scope.resource_group_name,
            account_name=account.name,
            share_name=scope.names.file_share,
            enabled_protocols="NFS",
            # Publishing runs as root on a node and keeps owners and modes.
            root_squash="NoRootSquash",
            share_quota=args.store.size_gib,
            opts=kept,
        )
        endpoint = PrivateEndpoint(
            f"{name}-files",
            PrivateEndpointArgs(
                scope=scope,
                endpoint_name="files",
                subnet_id=args.endpoint_subnet_id,
                target_id=account.id,
                group_id="file",
                zone_id=args.file_zone_id,
                after=args.endpoint_after,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        self.ready = [share, endpoint.ready]
        return pulumi.Output.from_input(args.store.source)
