"""The stack on Azure: composition only. Each component gets outputs of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import authorization, resources

from components import alert_rules, deletion
from components.access import Bastion, BastionArgs
from components.alerts import Alerts, AlertsArgs
from components.gateway import Gateway, GatewayArgs
from components.gateway.key_secrets import KeySecrets, KeySecretsArgs
from components.gpu_node import GpuNode, GpuNodeArgs
from components.model_store import ModelStore, ModelStoreArgs
from components.monitoring import Monitoring, MonitoringArgs
from components.network import Network, NetworkArgs
from components.private_dns import PrivateDns, PrivateDnsArgs
from components.scope import StackScope
from components.secrets import Secrets, SecretsArgs
from components.turns import Turns
from infra.targets.azure import artifacts, delivery
from infra.targets.azure.artifacts import Artifacts
from infra.targets.azure.delivery import Delivered
from infra.targets.azure.outputs import stack_outputs
from plan.azure.model import AzurePlan
from plan.azure_network import PrivateLink
from plan.secrets import Secret
from plan.vocabulary import BastionSku, Segment

_GROUP_GOES = "3h"
"""A gateway's deletion takes up to an hour, and its link to a subnet can outlive it for longer."""


@dataclass(frozen=True)
class _Base:
    """What nodes, gateway and alerts need."""

    scope: StackScope
    network: Network
    zone_ids: Mapping[str, pulumi.Input[str]]
    secrets: Secrets
    store: ModelStore
    monitoring: Monitoring


def deploy(plan: AzurePlan) -> None:
    """Register every resource of the plan and export the stack's outputs.

    Raises:
        InputError: what the plan asks for cannot be made; nothing has been registered.
    """
    made = artifacts.make(plan)
    base = _base(plan)
    _bastion(plan, base)
    turns = Turns.of(plan.serving)
    nodes = _nodes(plan, base, made, turns)
    gateway = _gateway(plan, base, turns)
    _subscription_keys(plan, base, gateway)
    _alerts(plan, base, nodes)
    for key, value in stack_outputs(plan, gateway, nodes, made.bundle.digest, base.network.nat_address).items():
        pulumi.export(key, value)


def _base(plan: AzurePlan) -> _Base:
    group = resources.ResourceGroup(
        "resource-group",
        resource_group_name=plan.names.resource_group,
        location=plan.location,
        tags=dict(plan.tags),
        opts=pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(delete=_GROUP_GOES)),
    )
    if not plan.protect and plan.network.existing_vnet is None:
        pulumi.runtime.register_stack_transformation(deletion.with_group(group))
    scope = StackScope(
        resource_group_name=group.name,
        location=plan.location,
        tags=plan.tags,
        names=plan.names,
        protect=plan.protect,
    )
    network = Network(
        "network",
        NetworkArgs(
            scope=scope,
            addresses=plan.addresses,
            security_rules=plan.security_rules,
            gateway_delegation=plan.gateway.delegation,
            zone=plan.compute.zone,
            existing_vnet=plan.network.existing_vnet,
        ),
    )
    dns = PrivateDns(
        "private-dns", PrivateDnsArgs(scope=scope, vnet_id=network.vnet_id, zones=plan.network.private_zones)
    )
    zone_ids: dict[str, pulumi.Input[str]] = {**dns.zone_ids}
    zone_ids.update({zone.value: zone_id for zone, zone_id in plan.network.existing_zones.items()})
    secrets = Secrets(
        "secrets",
        SecretsArgs(
            scope=scope,
            tenant_id=authorization.get_client_config_output().tenant_id,
            values=delivery.node_secrets(pulumi.Config(plan.project)),
            operator_object_ids=plan.access.operator_object_ids,
            endpoint_subnet_id=network.subnet_ids[Segment.ENDPOINTS],
            vault_zone_id=zone_ids.get(PrivateLink.VAULT),
        ),
    )
    store = ModelStore(
        "model-store",
        ModelStoreArgs(
            scope=scope,
            store=plan.store,
            zone=plan.compute.zone,
            endpoint_subnet_id=network.subnet_ids[Segment.ENDPOINTS],
            file_zone_id=zone_ids.get(PrivateLink.FILES),
            endpoint_after=secrets.ready,
        ),
    )
    monitoring = Monitoring("monitoring", MonitoringArgs(scope=scope, settings=plan.monitoring))
    return _Base(scope, network, zone_ids, secrets, store, monitoring)


def _bastion(plan: AzurePlan, base: _Base) -> None:
    if plan.access.bastion_sku is BastionSku.NONE:
        return
    Bastion(
        "bastion",
        BastionArgs(
            scope=base.scope,
            sku=plan.access.bastion_sku,
            tunnel=plan.access.tunnel,
            subnet_id=base.network.subnet_ids.get(Segment.BASTION),
            vnet_id=base.network.vnet_id,
        ),
    )


def _nodes(plan: AzurePlan, base: _Base, made: Artifacts, turns: Turns) -> list[Delivered]:
    """The GPU nodes, one after the other when they share a disk: Azure locks a disk while it attaches.

    They take their bundle in turns; nodes that only serve together take it together.
    """
    built = made.bundle
    vms: list[GpuNode] = []
    delivered: list[Delivered] = []
    needed = [base.network.ready, *base.secrets.ready, *base.store.ready]
    for node in plan.nodes:
        vm = GpuNode(
            node.name,
            GpuNodeArgs(
                scope=base.scope,
                compute=plan.compute,
                node=node,
                subnet_id=base.network.subnet_ids[Segment.NODES],
                identity_id=base.secrets.node_identity_id,
                model_disk_id=base.store.disk_id,
                model_disk_lun=plan.store.lun,
                custom_data=made.custom_data[node.name],
                scripts=delivery.run_command_scripts(plan, node, built, base.secrets),
                part_scripts=delivery.part_scripts(plan, built),
                bundle_digest=built.digest,
                secrets_version=base.secrets.version,
                vm_after=vms[-1].vm if vms and base.store.disk_id is not None else None,
                prepare_after=needed,
                turn_after=turns.before(),
            ),
        )
        vms.append(vm)
        each = delivery.deliver(plan, node, vm, built, needed, turns.before())
        turns.took(each.applied, served_before=each.served_before)
        delivered.append(each)
    return delivered


def _gateway(plan: AzurePlan, base: _Base, turns: Turns) -> Gateway:
    return Gateway(
        "gateway",
        GatewayArgs(
            scope=base.scope,
            gateway=plan.gateway,
            subnet_id=base.network.subnet_ids.get(Segment.GATEWAY),
            backend_key=pulumi.Config(plan.project).require_secret(Secret.BACKEND_KEY.key),
            insights_id=base.monitoring.insights_id,
            insights_connection_string=base.monitoring.insights_connection_string,
            workspace_id=base.monitoring.workspace_id,
            endpoint_subnet_id=base.network.subnet_ids[Segment.ENDPOINTS],
            gateway_zone_id=base.zone_ids.get(PrivateLink.GATEWAY),
            endpoint_after=[*base.secrets.ready, *base.store.ready],
            key_after=turns.serving,
        ),
    )


def _subscription_keys(plan: AzurePlan, base: _Base, gateway: Gateway) -> None:
    """Both keys of every subscription in the vault, where the stack asks for it."""
    if plan.gateway.keys_in_key_vault:
        KeySecrets(
            "subscription-keys",
            KeySecretsArgs(
                scope=base.scope,
                vault=base.secrets.vault,
                primary=gateway.product_keys,
                secondary=gateway.secondary_keys,
            ),
        )


def _alerts(plan: AzurePlan, base: _Base, nodes: Sequence[Delivered]) -> None:
    """The logs of an existing gateway go to its owner's workspace, so alerts cannot query them."""
    Alerts(
        "watch",
        AlertsArgs(
            scope=base.scope,
            workspace_id=base.monitoring.workspace_id,
            vm_ids=[node.vm_id for node in nodes],
            peers=alert_rules.peers(plan.gateway),
            emails=plan.monitoring.alert_emails,
            gateway_logs=plan.gateway.existing is None,
        ),
    )
