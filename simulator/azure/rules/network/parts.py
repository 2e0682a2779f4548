"""NSGs, NICs, public addresses and NAT gateways: ranges, sharing, and who still uses them."""

# ruff: noqa: D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.rules.network import bastion_nsg, held, subnets
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource, State
from simulator.plugin.values import dig, fill

# Simulated public addresses come from TEST-NET-3 (RFC 5737): never anybody's.
_PUBLIC: Final = ipaddress.IPv4Network("203.0.113.0/24")
_PORTS: Final = re.compile(r"^(\*|\d{1,5}(-\d{1,5})?)$")


def _listing(resources: Iterable[Resource]) -> str:
    return ", ".join(resource.id for resource in resources)


def _public_addresses(state: State) -> set[str]:
    found: set[str] = set()
    for resource in state.of_type("network:PublicIPAddress", "network:PublicIPPrefix"):
        text = resource.properties.get("ipAddress") or resource.properties.get("ipPrefix")
        if text:
            found |= {str(host) for host in ipaddress.ip_network(text, strict=False)}
    return found


def free_public_range(state: State, prefix_length: int) -> ipaddress.IPv4Network:
    """A range of simulated public addresses nobody has yet."""
    taken = _public_addresses(state)
    for candidate in _PUBLIC.subnets(new_prefix=prefix_length):
        if not any(str(host) in taken for host in candidate):
            return candidate
    raise ArmError(
        409, "PublicIPCountLimitReached", "Cannot create more public IP addresses (simulated range is used up)."
    )


@imitates("network:NetworkSecurityGroup")
class NetworkSecurityGroup(Rules):
    """Microsoft.Network/networkSecurityGroups."""

    typical_seconds = 4.0

    def create(self, op: Op) -> None:
        seen: dict[tuple[str, int], str] = {}
        for rule in op.inputs.get("securityRules") or []:
            _require_rule(op, rule)
            place = (str(rule.get("direction")).lower(), int(rule.get("priority", 0)))
            if place in seen:
                raise bad_request(
                    "SecurityRuleConflict",
                    f"Security rule {rule.get('name')} conflicts with rule {seen[place]}. Rules cannot have the same "
                    f"Priority and Direction. Priority: {place[1]}, Direction: {rule.get('direction')}.",
                )
            seen[place] = str(rule.get("name"))
        bastion_nsg.require_on_group(op.state, op.id, op.name, op.inputs.get("securityRules") or [])

    def delete(self, op: Op) -> None:
        users = op.state.referrers(op.id)
        if users:
            raise bad_request(
                "InUseNetworkSecurityGroupCannotBeDeleted",
                f"Network security group {op.id} cannot be deleted because it is in use by the following resources: "
                f"{_listing(users)}. In order to delete the Network security group, remove the association with the "
                "resource(s). To learn how to do this, see aka.ms/deletensg.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
        rules = outputs.setdefault(
            "securityRules", list((op.old.properties if op.old else {}).get("securityRules", []))
        )
        for rule in rules:
            fill(
                rule,
                {
                    "id": f"{op.id}/securityRules/{rule.get('name')}",
                    "type": "Microsoft.Network/networkSecurityGroups/securityRules",
                    "provisioningState": "Succeeded",
                    "destinationAddressPrefixes": [],
                    "destinationPortRanges": [],
                    "sourceAddressPrefixes": [],
                    "sourcePortRanges": [],
                },
            )


def _require_rule(op: Op, rule: Mapping[str, Any]) -> None:
    name, priority = rule.get("name"), rule.get("priority")
    if not isinstance(priority, int) or not 100 <= priority <= 4096:
        raise bad_request(
            "SecurityRuleInvalidPriority",
            f"Security rule has invalid Priority. Value provided: {priority} Allowed range 100-4096. Rule: {name}.",
        )
    for side in ("source", "destination"):
        ports = [*(rule.get(f"{side}PortRanges") or []), rule.get(f"{side}PortRange")]
        given = [str(port) for port in ports if port is not None]
        if not given:
            raise bad_request(
                "SecurityRuleParameterPortRangeCannotBeEmpty",
                "Required security rule parameters are missing for security rule with Id: "
                f"{op.id}/securityRules/{name}. "
                f"Security rule must specify {side[0].upper()}{side[1:]}PortRange(s).",
            )
        for port in given:
            if not _PORTS.match(port) or any(int(part) > 65535 for part in port.split("-") if part.isdigit()):
                raise bad_request(
                    "SecurityRuleInvalidPortRange",
                    f"Security rule has invalid Port range. Value provided: {port}. Value should be an integer OR "
                    "integer "
                    f"range with '-' delimiter. Valid range 0-65535. Rule: {name}.",
                )
        keys = (f"{side}AddressPrefix", f"{side}AddressPrefixes", f"{side}ApplicationSecurityGroups")
        if not any(rule.get(key) for key in keys):
            raise bad_request(
                "SecurityRuleInvalidAddressPrefix",
                f"Security rule {name} must specify {keys[0]} or {keys[1]}.",
            )


@imitates("network:NetworkInterface")
class NetworkInterface(Rules):
    """Microsoft.Network/networkInterfaces."""

    defaults: ClassVar[dict[str, Any]] = {
        "enableAcceleratedNetworking": False,
        "enableIPForwarding": False,
        "disableTcpStateTracking": False,
        "nicType": "Standard",
        "auxiliaryMode": "None",
        "auxiliarySku": "None",
    }
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        configs = op.inputs.get("ipConfigurations") or []
        if not configs:
            raise bad_request("NicMustHaveIpConfiguration", f"NIC {op.name} must have one or more IP configurations.")
        for config in configs:
            subnet_id = dig(config, "subnet.id")
            vnet = op.get(subnets.vnet_of(str(subnet_id)))
            if vnet is not None and vnet.location != op.location:
                raise bad_request(
                    "InvalidResourceReference",
                    f"Resource {subnet_id} referenced by resource {op.id} was not found. Please make sure that the "
                    "referenced resource exists, and that both resources are in the same region.",
                )
            if subnet_id and config.get("privateIPAllocationMethod") == "Static":
                address = config.get("privateIPAddress")
                if not address:
                    raise bad_request(
                        "StaticAllocationRequiresIPAddress",
                        f"IP configuration {config.get('name')} with static allocation must specify a private IP "
                        "address.",
                    )
                subnets.require_static(op.state, subnet_id, address, op.id)
            public = dig(config, "publicIPAddress.id")
            holder = public_ip_holder(op.state, str(public)) if public else None
            if holder and holder.id.lower() != op.id.lower():
                raise bad_request(
                    "PublicIPAddressInUse",
                    f"Resource {op.id} is referencing public IP address {public} that is already allocated to resource "
                    f"{holder.id}.",
                )

    def delete(self, op: Op) -> None:
        if (nic := op.state.get(op.id)) is not None:
            held.require_free(op, nic)
        for user in op.state.referrers(op.id):
            raise bad_request(
                "NicInUse",
                f"Network Interface {op.id} is used by existing resource {user.id}. In order to delete the network "
                "interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        before = {c.get("name"): c for c in (op.old.properties if op.old else {}).get("ipConfigurations", [])}
        for index, config in enumerate(outputs.get("ipConfigurations", [])):
            fill(
                config,
                {
                    "id": f"{op.id}/ipConfigurations/{config.get('name')}",
                    "type": "Microsoft.Network/networkInterfaces/ipConfigurations",
                    "privateIPAllocationMethod": "Dynamic",
                    "privateIPAddressVersion": "IPv4",
                    "primary": index == 0,
                    "provisioningState": "Succeeded",
                },
            )
            if not config.get("privateIPAddress") and dig(config, "subnet.id"):
                kept = before.get(config.get("name"), {}).get("privateIPAddress")
                config["privateIPAddress"] = kept or subnets.next_address(op.state, config["subnet"]["id"])
        fill(outputs, {"dnsSettings": {"appliedDnsServers": [], "dnsServers": []}, "tapConfigurations": []})
        fill(outputs, {"hostedWorkloads": [], "vnetEncryptionSupported": False})
        fill(outputs, {"defaultOutboundConnectivityEnabled": False})
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
        outputs["macAddress"] = (op.old.properties.get("macAddress", "") if op.old else "") or ""


def public_ip_holder(state: State, public_ip_id: str) -> Resource | None:
    """What uses a public address."""
    return next((user for user in state.referrers(public_ip_id) if user.id.lower() != public_ip_id.lower()), None)


@imitates("network:PublicIPAddress")
class PublicIpAddress(Rules):
    """Microsoft.Network/publicIPAddresses."""

    defaults: ClassVar[dict[str, Any]] = {
        "publicIPAddressVersion": "IPv4",
        "publicIPAllocationMethod": "Dynamic",
        "idleTimeoutInMinutes": 4,
        "ipTags": [],
        "sku": {"name": "Basic", "tier": "Regional"},
    }
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        standard = dig(op.inputs, "sku.name", "Basic") == "Standard"
        static = op.inputs.get("publicIPAllocationMethod", "Dynamic") == "Static"
        if standard and not static:
            raise bad_request(
                "StandardSkuPublicIPAddressMustBeStatic",
                f"Standard sku publicIp {op.id} must have AllocationMethod set to Static.",
            )

    def delete(self, op: Op) -> None:
        holder = public_ip_holder(op.state, op.id)
        if holder is not None:
            raise bad_request(
                "PublicIPAddressCannotBeDeleted",
                f"Public IP address {op.id} can not be deleted since it is still allocated to resource {holder.id}. In "
                "order to delete the public IP, disassociate/detach the Public IP address from the resource. To learn "
                "how to do this, see aka.ms/deletepublicip.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
        if outputs["publicIPAllocationMethod"] != "Static":
            return
        kept = op.old.properties.get("ipAddress") if op.old else None
        prefix = op.get(dig(op.inputs, "publicIPPrefix.id"))
        if kept:
            outputs["ipAddress"] = kept
        elif prefix is not None:
            taken = {ip.properties.get("ipAddress") for ip in op.state.of_type("network:PublicIPAddress")}
            hosts = [str(host) for host in ipaddress.ip_network(prefix.properties["ipPrefix"])]
            outputs["ipAddress"] = next((host for host in hosts if host not in taken), hosts[0])
        else:
            outputs["ipAddress"] = str(free_public_range(op.state, 32).network_address)
        label = dig(outputs, "dnsSettings.domainNameLabel")
        if label:
            outputs["dnsSettings"].setdefault("fqdn", f"{label}.{op.location}.cloudapp.azure.com")


@imitates("network:PublicIPPrefix")
class PublicIpPrefix(Rules):
    """Microsoft.Network/publicIPPrefixes."""

    defaults: ClassVar[dict[str, Any]] = {
        "publicIPAddressVersion": "IPv4",
        "ipTags": [],
        "sku": {"name": "Standard", "tier": "Regional"},
    }
    typical_seconds = 3.0

    def create(self, op: Op) -> None:
        length = op.inputs.get("prefixLength", 28)
        if not 28 <= length <= 31:
            raise bad_request(
                "PublicIpPrefixLengthInvalid", f"Public IP prefix {op.name}: length {length} is not in 28-31."
            )

    def update(self, op: Op) -> None:
        before = op.old.properties.get("prefixLength") if op.old else None
        if op.inputs.get("prefixLength") != before:
            raise bad_request("PublicIpPrefixLengthCannotBeChanged", f"The length of {op.id} cannot be changed.")

    def delete(self, op: Op) -> None:
        users = op.state.referrers(op.id)
        if users:
            raise bad_request(
                "InUsePublicIpPrefixCannotBeDeleted",
                f"Public IP prefix {op.id} cannot be deleted because it is in use by: {_listing(users)}.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
        kept = op.old.properties.get("ipPrefix") if op.old else None
        outputs["ipPrefix"] = kept or str(free_public_range(op.state, int(outputs.get("prefixLength", 28))))


@imitates("network:NatGateway")
class NatGateway(Rules):
    """Microsoft.Network/natGateways."""

    defaults: ClassVar[dict[str, Any]] = {"idleTimeoutInMinutes": 4}
    typical_seconds = 5.0

    def create(self, op: Op) -> None:
        if dig(op.inputs, "sku.name") not in {"Standard", "StandardV2"}:
            raise bad_request("NatGatewaySkuRequired", f"NAT gateway {op.id} must have sku Standard.")
        for reference in op.inputs.get("publicIpAddresses") or []:
            address = op.get(reference.get("id"))
            if address is not None and dig(address.properties, "sku.name") != "Standard":
                raise bad_request(
                    "NatGatewayPublicIPMustBeStandardSku",
                    f"NAT gateway {op.id} can only reference public IP addresses of sku Standard: {address.id}.",
                )

    def delete(self, op: Op) -> None:
        users = op.state.referrers(op.id)
        if users:
            raise bad_request(
                "InUseNatGatewayCannotBeDeleted",
                f"Nat gateway {op.id} cannot be deleted because it is in use by the following subnet(s): "
                f"{_listing(users)}.",
            )

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
