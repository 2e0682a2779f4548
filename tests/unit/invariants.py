"""What must hold over all resources of any stack. Each function yields a sentence for each violation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from plan.azure.model import AzurePlan
from plan.vocabulary import SUBNETS
from simulator.azure.contracts import refusal, shapes
from simulator.azure.sdk import schema
from simulator.azure.sdk.paths import path_of
from simulator.plugin.values import UNKNOWN
from tests.unit.recording import Recorded, Recording

INLINE_OR_STANDALONE: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "network:VirtualNetwork": ("subnets", ("network:Subnet",)),
    "network:NetworkSecurityGroup": ("securityRules", ("network:SecurityRule",)),
    "network:RouteTable": ("routes", ("network:Route",)),
    "keyvault:Vault": ("properties.accessPolicies", ("keyvault:AccessPolicy",)),
    "compute:VirtualMachine": ("storageProfile.dataDisks", ("compute:VirtualMachineDataDiskAttachment",)),
}
"""Parents whose children can be written in two places (docs/facts/pulumi.md#inline-or-standalone)."""
HOLDS_DATA = ("compute:Disk", "storage:StorageAccount", "keyvault:Vault", "apimanagement:ApiManagementService")
"""What `prod` promises to protect: data and the gateway."""
GO_WITH_THEIR_PARENT = {
    "keyvault:Secret": "keyvault:Vault",
    "compute:VirtualMachineRunCommandByVirtualMachine": "compute:VirtualMachine",
}
DELETED_BY_THEMSELVES = (
    "resources:ResourceGroup",
    "compute:VirtualMachine",
    "apimanagement:ApiManagementService",
    "authorization:RoleAssignment",
    "monitor:DiagnosticSetting",
)
WITHOUT_CONTRACT: Mapping[str, str] = {}
"""Types that no contract covers, each with the reason."""
GATEWAY_WRITES_IN_A_ROW = ("apimanagement:Subscription", "apimanagement:ProductApi")


def fixed_names_replace_delete_first(recording: Recording) -> Iterator[str]:
    """A fixed name exists already when the engine creates first (docs/facts/pulumi.md#created-before-deleted)."""
    for resource in _custom(recording):
        if resource.replace_on_changes and _has_fixed_name(resource) and resource.delete_before_replace is not True:
            yield f"{resource.type} {resource.name} replaces on changes but is not deleted first"


def children_stand_in_one_place(recording: Recording) -> Iterator[str]:
    """Inline children wipe standalone ones, or the other way round (docs/facts/pulumi.md#inline-or-standalone)."""
    for parent, (inline, standalone) in INLINE_OR_STANDALONE.items():
        has_inline = any(resource[inline] for resource in recording.of(parent))
        loose = [resource.name for kind in standalone for resource in recording.of(kind)]
        if has_inline and loose:
            yield f"{parent} has inline {inline}, and also standalone {', '.join(loose)}"


def what_holds_data_is_protected(recording: Recording, plan: AzurePlan) -> Iterator[str]:
    """`prod` protects data and gateway; everything in other stacks can be destroyed."""
    for resource in _custom(recording):
        kind = resource.type.removeprefix("azure-native:")
        if plan.protect and kind in HOLDS_DATA and not resource.protect:
            yield f"{kind} {resource.name} is not protected in {plan.stack}"
        stays_behind = resource.retain_on_delete and not resource.deleted_with
        if not plan.protect and (resource.protect or stays_behind):
            yield f"{kind} {resource.name} can't be destroyed in {plan.stack}"


def nodes_have_no_public_address(recording: Recording) -> Iterator[str]:
    """Nothing on a node's interface is reachable from the internet."""
    for nic in recording.of("network:NetworkInterface"):
        for configuration in nic["ipConfigurations"] or []:
            if "publicIPAddress" in configuration:
                yield f"{nic.name} has a public address"


def security_rules_match_the_port_table(recording: Recording, plan: AzurePlan) -> Iterator[str]:
    """Every allowed port is in the table with that caller, and every network flow of the table is allowed."""
    allowed = {
        (group["networkSecurityGroupName"], rule["direction"], port)
        for group in recording.of("network:NetworkSecurityGroup")
        for rule in group["securityRules"] or []
        if rule["access"] == "Allow"
        for port in _ports(rule)
    }
    wanted = {
        (plan.names.nsg(zone), "Inbound" if flow.listener is zone else "Outbound", port)
        for zone in SUBNETS
        if zone in plan.addresses.own_subnets
        for flow in plan.port_table
        for port in flow.port_ranges
        if (flow.listener is zone and not flow.loopback_only) or (flow.listener not in SUBNETS and zone in flow.callers)
    }
    for group, direction, port in sorted(allowed - wanted):
        yield f"{group} allows {direction.lower()} {port}, which is not in the port table"
    for group, direction, port in sorted(wanted - allowed):
        yield f"{group} lacks {direction.lower()} {port}, which is in the port table"


def security_groups_end_with_a_deny(recording: Recording) -> Iterator[str]:
    """Azure's default rules let a whole VNet talk; ours say no last."""
    for group in recording.of("network:NetworkSecurityGroup"):
        inbound = [rule for rule in group["securityRules"] or [] if rule["direction"] == "Inbound"]
        last = max(inbound, key=lambda rule: rule["priority"], default=None)
        if last is None or last["access"] != "Deny" or last["sourceAddressPrefix"] != "*":
            yield f"{group.name} does not end with a deny"


def nodes_that_share_a_disk_come_one_by_one(recording: Recording) -> Iterator[str]:
    """Two VMs that attach the same disk at once fail (docs/facts/azure.md#parallel-attach)."""
    sharing = [vm for vm in recording.of("compute:VirtualMachine") if vm["storageProfile.dataDisks"]]
    for first, second in pairwise(sharing):
        if not recording.waits_for(second, first):
            yield f"{second.name} does not wait for {first.name}, which attaches the same disk"


def gateway_entities_are_written_one_by_one(recording: Recording) -> Iterator[str]:
    """API Management answers parallel writes with 412 (docs/facts/api-management.md#one-write-at-a-time)."""
    for kind in GATEWAY_WRITES_IN_A_ROW:
        for first, second in pairwise(recording.of(kind)):
            if not recording.waits_for(second, first):
                yield f"{second.name} does not wait for {first.name}"


def components_say_what_they_made(recording: Recording) -> Iterator[str]:
    """Without register_outputs a component stays open in displays and its outputs are not in state."""
    for resource in recording.resources:
        if resource.type.startswith("h100:") and resource.urn not in recording.outputs:
            yield f"{resource.type} {resource.name} never registers its outputs"


def resources_belong_to_a_component(recording: Recording) -> Iterator[str]:
    """Only the resource group stands at the top: everything else has a component that explains it."""
    for resource in _custom(recording):
        parent = recording.by_urn(resource.parent)
        if resource.type != "azure-native:resources:ResourceGroup" and (
            parent is None or not parent.type.startswith("h100:")
        ):
            yield f"{resource.type} {resource.name} has no component around it"


def bodies_are_as_azure_wants_them(recording: Recording) -> Iterator[str]:
    """What is sent has no fault in Microsoft's own types (docs/decisions/0015), and each type has a contract."""
    for resource in _custom(recording):
        kind = schema.resource(resource.type)
        if kind.key not in shapes.arm_types() and kind.key not in WITHOUT_CONTRACT:
            yield f"{kind.key} has no contract: add it to simulator/azure/contracts/types.yaml"
        # The provider fills these two in.
        filled = {path_of(kind).name_param: resource.name, "location": "eastus2", **resource.plain}
        for fault in refusal.faults_in(kind, {key: filled[key] for key in filled if key in kind.inputs}):
            yield f"{kind.key} {resource.name}: {fault}"


def everything_carries_the_tags(recording: Recording, plan: AzurePlan) -> Iterator[str]:
    """What costs money can be found by its tags."""
    for resource in _custom(recording):
        kind = schema.resource(resource.type)
        if "tags" not in kind.inputs or "location" not in kind.inputs:
            continue
        tags = resource["tags"]
        missing = [key for key, value in plan.tags.items() if not isinstance(tags, dict) or tags.get(key) != value]
        if missing:
            yield f"{resource.type} {resource.name} lacks the tags {', '.join(missing)}"


def deletions_are_left_to_azure(recording: Recording, plan: AzurePlan) -> Iterator[str]:
    """A gateway of ours takes its entities along, the group of an unprotected stack all that is in it, but for what is
    deleted by itself. In places of others nothing is left to an owner whom the stack does not delete.
    """
    for resource in _custom(recording):
        kind = resource.type.removeprefix("azure-native:")
        if kind in GO_WITH_THEIR_PARENT:
            owner = recording.by_urn(resource.deleted_with)
            if owner is None or owner.type != f"azure-native:{GO_WITH_THEIR_PARENT[kind]}":
                yield f"{kind} {resource.name} does not go with its {GO_WITH_THEIR_PARENT[kind]}"
            continue
        if kind.startswith("apimanagement:") and kind != "apimanagement:ApiManagementService":
            owned = plan.gateway.existing is None
        else:
            owned = not plan.protect and plan.network.existing_vnet is None and kind not in DELETED_BY_THEMSELVES
        if owned != bool(resource.deleted_with):
            yield f"{kind} {resource.name} " + ("is deleted one by one" if owned else "goes with an owner")


def _custom(recording: Recording) -> list[Recorded]:
    return [resource for resource in recording.resources if resource.custom and "azure-native:" in resource.type]


def _name(resource: Recorded) -> Any:
    path = path_of(schema.resource(resource.type))
    return resource.plain.get(path.name_param)


def _has_fixed_name(resource: Recorded) -> bool:
    return _name(resource) is not None and _name(resource) is not UNKNOWN


def _ports(rule: Mapping[str, Any]) -> list[str]:
    many = rule.get("destinationPortRanges") or []
    one = rule.get("destinationPortRange")
    return [*many, *([one] if one else [])]
