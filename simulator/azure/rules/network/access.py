"""Bastion, private endpoints and private DNS."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.rules.base import Failure, Op, Rules, imitates
from simulator.azure.rules.network import subnets
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig, fill

_BASTION_ORDER: Final = ("Developer", "Basic", "Standard", "Premium")
# Sub-resources a private endpoint can name, by type of its target (Microsoft's private link documentation).
GROUP_IDS: Final = {
    "keyvault:Vault": {"vault"},
    "storage:StorageAccount": {"file", "blob", "table", "queue", "dfs", "web"},
    "apimanagement:ApiManagementService": {"Gateway"},
}
_HOSTS: Final = {
    "vault": "{name}.vault.azure.net",
    "file": "{name}.file.core.windows.net",
    "blob": "{name}.blob.core.windows.net",
    "Gateway": "{name}.azure-api.net",
}


@imitates("network:BastionHost")
class BastionHost(Rules):
    """Microsoft.Network/bastionHosts."""

    defaults: ClassVar[dict[str, Any]] = {"sku": {"name": "Basic"}, "scaleUnits": 2, "enableTunneling": False}
    typical_seconds = 300.0

    def create(self, op: Op) -> None:
        sku = dig(op.inputs, "sku.name", "Basic")
        if sku in {"Basic", "Developer"}:
            for feature in ("enableTunneling", "enableIpConnect", "enableFileCopy", "enableShareableLink"):
                if op.inputs.get(feature):
                    raise bad_request(
                        "BastionSkuFeatureNotSupported",
                        f"Bastion host {op.id}: {feature} is not supported for Sku {sku}.",
                    )
        if sku == "Developer":
            if not dig(op.inputs, "virtualNetwork.id"):
                raise bad_request(
                    "BastionVirtualNetworkRequired", f"Bastion host {op.id} of Sku Developer needs a VNet."
                )
            return
        configs = op.inputs.get("ipConfigurations") or []
        if len(configs) != 1:
            raise bad_request("BastionIpConfigurationInvalid", f"Bastion host {op.id} must have one IP configuration.")
        subnet_id = str(dig(configs[0], "subnet.id", ""))
        if subnet_id.rsplit("/", 1)[-1].lower() != subnets.BASTION_SUBNET.lower():
            raise bad_request(
                "BastionSubnetNameInvalid",
                f"Bastion host {op.id} must be deployed into a subnet named {subnets.BASTION_SUBNET}, not {subnet_id}.",
            )
        body = subnets.body_of(op.state, subnet_id) or {}
        if any(network.prefixlen > 26 for network in subnets.prefixes_of(body)):
            raise bad_request(
                "BastionSubnetSizeInvalid",
                f"Subnet {subnet_id} of Bastion host {op.id} must have a prefix of /26 or larger, it has "
                f"{body.get('addressPrefix')}.",
            )
        address = op.get(dig(configs[0], "publicIPAddress.id"))
        if address is None or dig(address.properties, "sku.name") != "Standard":
            raise bad_request(
                "BastionPublicIPMustBeStandard",
                f"Bastion host {op.id} needs a static public IP address of sku Standard.",
            )
        for other in op.state.of_type("network:BastionHost"):
            if other.id.lower() != op.id.lower() and subnet_id.lower() in other.refs:
                raise bad_request("BastionSubnetInUse", f"Subnet {subnet_id} already has Bastion host {other.id}.")

    def update(self, op: Op) -> None:
        self.create(op)
        before = dig(op.old.properties if op.old else {}, "sku.name", "Basic")
        after = dig(op.inputs, "sku.name", "Basic")
        if _BASTION_ORDER.index(after) < _BASTION_ORDER.index(before):
            raise bad_request(
                "BastionSkuDowngradeNotSupported", f"Bastion host {op.id}: Sku cannot go from {before} down to {after}."
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        host = derived(op.state.salt, op.id, "dns", length=32)
        outputs["dnsName"] = f"bst-{host}.bastion.azure.com"
        for config in outputs.get("ipConfigurations", []):
            config["id"] = f"{op.id}/bastionHostIpConfigurations/{config.get('name')}"


@imitates("network:PrivateEndpoint")
class PrivateEndpoint(Rules):
    """Microsoft.Network/privateEndpoints, with the NIC Azure makes for it."""

    defaults: ClassVar[dict[str, Any]] = {"customDnsConfigs": [], "manualPrivateLinkServiceConnections": []}
    typical_seconds = 60.0

    def create(self, op: Op) -> None:
        connections = [
            *(op.inputs.get("privateLinkServiceConnections") or []),
            *(op.inputs.get("manualPrivateLinkServiceConnections") or []),
        ]
        if len(connections) != 1:
            raise bad_request("PrivateEndpointConnectionInvalid", f"{op.id} must have exactly one connection.")
        target = op.get(connections[0].get("privateLinkServiceId"))
        known = GROUP_IDS.get(target.key) if target else None
        for group in connections[0].get("groupIds") or []:
            if known is not None and group not in known:
                raise bad_request(
                    "PrivateEndpointInvalidGroupId",
                    f"Call to {op.path.arm_type} failed: group id '{group}' is not one of {sorted(known)} of "
                    f"{target.id}."
                    if target
                    else group,
                )
        if target and target.key == "apimanagement:ApiManagementService":
            _require_linkable(target)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        nic_id = _nic_of(op)
        subnet_id = str(dig(op.inputs, "subnet.id"))
        nic = op.state.get(nic_id)
        static = dig(op.inputs, "ipConfigurations.0.privateIPAddress")
        kept = dig(nic.properties, "ipConfigurations.0.privateIPAddress") if nic else None
        address = static or kept or subnets.next_address(op.state, subnet_id)
        op.notes["address"] = address
        outputs["networkInterfaces"] = [{"id": nic_id}]
        for connection in outputs.get("privateLinkServiceConnections", []):
            fill(
                connection,
                {
                    "id": f"{op.id}/privateLinkServiceConnections/{connection.get('name')}",
                    "provisioningState": "Succeeded",
                    "type": "Microsoft.Network/privateEndpoints/privateLinkServiceConnections",
                    "privateLinkServiceConnectionState": {"status": "Approved", "description": "Auto-approved"},
                },
            )
            target = str(connection.get("privateLinkServiceId")).rsplit("/", 1)[-1]
            names = [
                _HOSTS.get(group, "{name}.privatelink").format(name=target)
                for group in connection.get("groupIds") or []
            ]
            outputs["customDnsConfigs"] = [{"fqdn": name, "ipAddresses": [address]} for name in names]

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        nic = Resource(
            id=_nic_of(op),
            token="azure-native:network:NetworkInterface",  # noqa: S106 - a type, not a password
            location=op.location,
            created=op.now,
            managed_by=op.id,
            properties={
                "name": _nic_of(op).rsplit("/", 1)[-1],
                "ipConfigurations": [
                    {
                        "name": "privateEndpointIpConfig",
                        "subnet": {"id": dig(op.inputs, "subnet.id")},
                        "privateIPAddress": resource.notes["address"],
                    }
                ],
                "privateEndpoint": {"id": op.id},
            },
        )
        op.state.put(nic)
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        for nic in list(op.state.resources.values()):
            if nic.managed_by == resource.id:
                op.state.remove(nic.id)


def _nic_of(op: Op) -> str:
    group = op.id.split("/providers/")[0]
    name = op.inputs.get("customNetworkInterfaceName") or f"{op.name}.nic.{derived(op.state.salt, op.id, length=8)}"
    return f"{group}/providers/Microsoft.Network/networkInterfaces/{name}"


def _require_linkable(service: Resource) -> None:
    tier = str(dig(service.properties, "sku.name"))
    injected = service.properties.get("virtualNetworkType", "None") != "None"
    if tier in {"Consumption", "BasicV2"} or (injected and tier in {"Developer", "Premium"}):
        why = "an instance that is injected into a virtual network" if injected else f"Sku Type '{tier}'"
        raise bad_request(
            "PrivateEndpointConnectionNotSupported", f"Private endpoints are not supported for {why}: {service.id}."
        )


@imitates("network:PrivateDnsZoneGroup")
class PrivateDnsZoneGroup(Rules):
    """privateDnsZoneGroups of a private endpoint: they write the records."""

    typical_seconds = 10.0

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        endpoint = op.state.get(op.parent_id)
        found = (endpoint.properties if endpoint else {}).get("customDnsConfigs", [])
        for config in outputs.get("privateDnsZoneConfigs", []):
            zone = str(config.get("privateDnsZoneId")).rsplit("/", 1)[-1]
            config["recordSets"] = [
                {
                    "recordSetName": str(item["fqdn"]).split(".", 1)[0],
                    "recordType": "A",
                    "fqdn": f"{str(item['fqdn']).split('.', 1)[0]}.{zone}",
                    "ipAddresses": item["ipAddresses"],
                    "ttl": 10,
                    "provisioningState": "Succeeded",
                }
                for item in found
            ]

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        for config in resource.properties.get("privateDnsZoneConfigs", []):
            for record in config.get("recordSets", []):
                record_id = f"{config['privateDnsZoneId']}/A/{record['recordSetName']}"
                op.state.put(
                    Resource(
                        id=record_id,
                        token="azure-native:privatedns:PrivateRecordSet",  # noqa: S106 - a type
                        created=op.now,
                        managed_by=op.id,
                        properties={
                            "name": record["recordSetName"],
                            "fqdn": record["fqdn"],
                            "aRecords": [{"ipv4Address": address} for address in record["ipAddresses"]],
                            "ttl": 10,
                            "type": "Microsoft.Network/privateDnsZones/A",
                        },
                    )
                )
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        for record in list(op.state.resources.values()):
            if record.managed_by == resource.id:
                op.state.remove(record.id)


def _global_only(arm_type: str, inputs: Mapping[str, Any]) -> ArmError | None:
    location = str(inputs.get("location", "")).replace(" ", "").lower()
    if location == "global":
        return None
    return bad_request(
        "LocationNotAvailableForResourceType",
        f"The provided location '{inputs.get('location')}' is not available for resource type '{arm_type}'. List of "
        "available regions for the resource type is 'global'.",
    )


@imitates("privatedns:PrivateZone")
class PrivateZone(Rules):
    """Microsoft.Network/privateDnsZones."""

    defaults: ClassVar[dict[str, Any]] = {
        "maxNumberOfRecordSets": 25000,
        "maxNumberOfVirtualNetworkLinks": 1000,
        "maxNumberOfVirtualNetworkLinksWithRegistration": 100,
        "numberOfRecordSets": 1,
        "numberOfVirtualNetworkLinks": 0,
        "numberOfVirtualNetworkLinksWithRegistration": 0,
    }
    typical_seconds = 30.0

    def create(self, op: Op) -> None:
        if error := _global_only(op.path.arm_type, op.inputs):
            raise error

    def delete(self, op: Op) -> None:
        links = [child for child in op.state.inside(op.id) if child.key == "privatedns:VirtualNetworkLink"]
        if links:
            raise conflict(
                "CannotDeleteResource",
                "Cannot delete resource while nested resources exist. Some existing nested resource IDs include: "
                f"'{links[0].id}'. Please delete all nested resources before deleting this resource.",
            )


@imitates("privatedns:VirtualNetworkLink")
class VirtualNetworkLink(Rules):
    """virtualNetworkLinks of a private zone: a VNet takes one of each name (docs/facts/azure.md#zones-of-one-vnet)."""

    defaults: ClassVar[dict[str, Any]] = {"registrationEnabled": False, "virtualNetworkLinkState": "Completed"}
    typical_seconds = 30.0

    def create(self, op: Op) -> None:
        if error := _global_only(op.path.arm_type, op.inputs):
            raise error
        vnet = str(dig(op.inputs, "virtualNetwork.id", "")).lower()
        zone = op.parent_id.rsplit("/", 1)[-1]
        for link in op.state.of_type("privatedns:VirtualNetworkLink"):
            same_zone = link.id.rsplit("/", 3)[-3].lower() == zone.lower()
            if same_zone and vnet in link.refs and link.id.lower() != op.id.lower():
                raise bad_request(
                    "BadRequest",
                    "A virtual network cannot be linked to multiple zones with overlapping namespaces. You tried to "
                    "link "
                    f"virtual network with '{zone}' and '{zone}' zones.",
                )


@imitates("privatedns:PrivateRecordSet")
class PrivateRecordSet(Rules):
    """Records of a private zone."""

    typical_seconds = 2.0

    def check(self, inputs: dict[str, Any]) -> Iterator[Failure]:
        ttl = inputs.get("ttl")
        if isinstance(ttl, (int, float)) and not 1 <= ttl <= 2147483647:
            yield "ttl", "'ttl' is not in 1-2147483647"

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        zone = op.inputs["privateZoneName"]
        outputs["fqdn"] = f"{op.name}.{zone}."
        outputs["isAutoRegistered"] = False
        outputs["type"] = f"Microsoft.Network/privateDnsZones/{op.inputs['recordType']}"
