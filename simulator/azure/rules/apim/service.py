"""API Management services: tiers, networks, names that stay reserved.

Facts: docs/facts/api-management.md#tiers, docs/facts/api-management.md#classic-injection,
docs/facts/api-management.md#v2-tiers-in-a-vnet, docs/facts/api-management.md#soft-delete. The two messages about
`Internal` and `publicNetworkAccess` are the service's own (Azure-Samples/AI-Gateway shows them); the others are
worded here.
"""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from simulator.azure.errors import ArmError, bad_request, conflict
from simulator.azure.rules.apim.nsg import missing_rule
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.rules.compute.vm import fill_identity
from simulator.azure.rules.network import subnets
from simulator.azure.state.store import Deleted, Resource
from simulator.plugin.values import dig, fill

SOFT_DELETE_S: Final = 48 * 3600.0
_TOKEN: Final = "azure-native:apimanagement:ApiManagementService"  # noqa: S105 - a type, not a password


@dataclass(frozen=True)
class Mode:
    """How a tier may be put into a network."""

    delegation: str | None  # the delegation the subnet must have; None: it must have none
    longest_prefix: int
    create_only: bool = False
    dedicated: bool = False


_INJECTED: Final = Mode(None, 29)
_INTEGRATED: Final = Mode("Microsoft.Web/serverFarms", 27, dedicated=True)
_INJECTED_V2: Final = Mode("Microsoft.Web/hostingEnvironments", 27, create_only=True, dedicated=True)
MODES: Final = {
    ("Developer", "External"): _INJECTED,
    ("Developer", "Internal"): _INJECTED,
    ("Premium", "External"): _INJECTED,
    ("Premium", "Internal"): _INJECTED,
    ("StandardV2", "External"): _INTEGRATED,
    ("PremiumV2", "External"): _INTEGRATED,
    ("PremiumV2", "Internal"): _INJECTED_V2,
}
# Smallest and largest number of units.
CAPACITY: Final = {
    "Consumption": (0, 0),
    "Developer": (1, 1),
    "Basic": (1, 2),
    "Standard": (1, 4),
    "Premium": (1, 31),
    "BasicV2": (1, 10),
    "StandardV2": (1, 10),
    "PremiumV2": (1, 30),
    "Isolated": (1, 1),
}


def tier_of(body: dict[str, Any]) -> str:
    """`sku.name`."""
    return str(dig(body, "sku.name"))


def lock_of(service_id: str) -> str:
    """The key under which writes of a service exclude each other."""
    return f"apim:{service_id.lower()}"


@imitates("apimanagement:ApiManagementService")
class ApiManagementService(Rules):
    """Microsoft.ApiManagement/service."""

    defaults: ClassVar[dict[str, Any]] = {
        "virtualNetworkType": "None",
        "publicNetworkAccess": "Enabled",
        "disableGateway": False,
        "natGatewayState": "Unsupported",
        "apiVersionConstraint": {},
        "notificationSenderEmail": "apimgmt-noreply@mail.windowsazure.com",
        "targetProvisioningState": "",
        "privateEndpointConnections": [],
        "additionalLocations": [],
        "certificates": [],
    }
    hidden = ("restore",)
    typical_seconds = 600.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (lock_of(op.id),)

    def busy(self, op: Op, key: str) -> ArmError:
        return conflict(
            "ServiceLocked",
            f"The API Service {op.name} is transitioning at this time. Please try the request again later.",
        )

    def create(self, op: Op) -> None:
        self._require_name(op)
        if dig(op.inputs, "publicNetworkAccess") == "Disabled":
            raise bad_request(
                "ActivationFailed",
                "Blocking all public network access by setting property `publicNetworkAccess` of API Management "
                "service "
                f"{op.name} is not enabled during service creation.",
            )
        self._require_shape(op)

    def update(self, op: Op) -> None:
        before = op.old.properties if op.old else {}
        old_tier, new_tier = tier_of(before), tier_of(op.inputs)
        if old_tier.endswith("V2") != new_tier.endswith("V2") or "Consumption" in {old_tier, new_tier} - {old_tier}:
            raise bad_request(
                "InvalidOperation", f"Changing Sku Type from '{old_tier}' to '{new_tier}' is not supported."
            )
        mode = MODES.get((new_tier, str(op.inputs.get("virtualNetworkType", "None"))))
        moved = before.get("virtualNetworkType") != op.inputs.get("virtualNetworkType", "None")
        if moved and (
            (mode and mode.create_only) or (before.get("virtualNetworkType") == "Internal" and new_tier == "PremiumV2")
        ):
            raise bad_request(
                "InvalidOperation",
                f"Virtual network injection of a '{new_tier}' service can only be chosen at creation.",
            )
        closing = op.inputs.get("publicNetworkAccess") == "Disabled"
        if closing and op.inputs.get("virtualNetworkType", "None") != "Internal" and not _endpoints(op):
            raise bad_request(
                "InvalidOperation",
                f"Property `publicNetworkAccess` of API Management service {op.name} can only be disabled when it has "
                "an "
                "approved private endpoint connection.",
            )
        self._require_shape(op)

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        name, tier = op.name.lower(), tier_of(op.inputs)
        v2 = tier.endswith("V2")
        outputs["gatewayUrl"] = f"https://{name}.azure-api.net"
        outputs["developerPortalUrl"] = f"https://{name}.developer.azure-api.net"
        fill(outputs, {"developerPortalStatus": "Disabled" if v2 else "Enabled"})
        if not v2 and tier != "Consumption":
            outputs["gatewayRegionalUrl"] = f"https://{name}-{op.location}-01.regional.azure-api.net"
            outputs["portalUrl"] = f"https://{name}.portal.azure-api.net"
            outputs["managementApiUrl"] = f"https://{name}.management.azure-api.net"
            outputs["scmUrl"] = f"https://{name}.scm.azure-api.net"
        outputs["platformVersion"] = "stv2.1" if v2 else ("mtv1" if tier == "Consumption" else "stv2")
        outputs["createdAtUtc"] = op.old.properties["createdAtUtc"] if op.old else op.timestamp
        outputs["hostnameConfigurations"] = outputs.get("hostnameConfigurations") or [
            {
                "type": "Proxy",
                "hostName": f"{name}.azure-api.net",
                "defaultSslBinding": True,
                "negotiateClientCertificate": False,
                "certificateSource": "BuiltIn",
            }
        ]
        if tier != "Consumption":
            outputs["publicIPAddresses"] = ["203.0.113.250"]
            outputs["outboundPublicIPAddresses"] = ["203.0.113.250"]
        # "Available only for Basic, Standard, Premium and Isolated SKU" (SDK, `private_ip_addresses`).
        if op.inputs.get("virtualNetworkType") == "Internal" and not v2:
            subnet_id = str(dig(op.inputs, "virtualNetworkConfiguration.subnetResourceId"))
            kept = (op.old.properties if op.old else {}).get("privateIPAddresses")
            outputs["privateIPAddresses"] = kept or [subnets.next_address(op.state, subnet_id)]
        if outputs.get("identity"):
            fill_identity(op, outputs["identity"])

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        for item in list(op.state.deleted):
            if item.token == _TOKEN and item.name.lower() == op.name.lower():
                op.state.deleted.remove(item)
        self._built_in(op)
        tier = tier_of(op.inputs)
        if MODES.get((tier, str(op.inputs.get("virtualNetworkType")))) is _INJECTED:
            subnet_id = str(dig(op.inputs, "virtualNetworkConfiguration.subnetResourceId"))
            hole = missing_rule(op.state, subnet_id, int(dig(op.inputs, "sku.capacity", 1)))
            if hole:
                return ArmError(
                    200,
                    "ActivationFailed",
                    "Unable to activate API service at this time. This may be due to network rules: "
                    f"{hole}. Please correct the network security group and try again.",
                )
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        subnet = str(dig(resource.properties, "virtualNetworkConfiguration.subnetResourceId", "") or "")
        if op.link_stays_s and subnet:
            subnets.keep_link(op.state, subnet, op.now + op.link_stays_s)
        op.state.deleted.append(
            Deleted(
                id=resource.id,
                token=resource.token,
                name=resource.name,
                location=resource.location,
                deleted=op.now,
                purge_at=op.now + SOFT_DELETE_S,
            )
        )

    def _require_name(self, op: Op) -> None:
        for other in op.state.of_type("apimanagement:ApiManagementService"):
            if other.name.lower() == op.name.lower():
                raise conflict("ServiceAlreadyExists", f"Api service already exists: {op.name}")
        asleep = op.state.soft_deleted("apimanagement:ApiManagementService", op.name, op.now)
        if asleep is not None and not op.inputs.get("restore"):
            raise conflict(
                "ServiceAlreadyExistsInSoftDeletedState",
                f"Api service {op.name} was soft-deleted. In order to create the new service with the same name, you "
                "have to "
                "either undelete the service or purge it. See https://aka.ms/apimsoftdelete.",
            )
        if asleep is None and op.inputs.get("restore"):
            raise ArmError(404, "ServiceUndeleteFailed", f"There is no soft-deleted service {op.name} to restore.")

    def _require_shape(self, op: Op) -> None:
        tier, units = tier_of(op.inputs), dig(op.inputs, "sku.capacity")
        bounds = CAPACITY.get(tier)
        if bounds is None:
            raise bad_request("InvalidParameters", f"Invalid parameter: Sku Type '{tier}' does not exist.")
        if not bounds[0] <= int(units if units is not None else -1) <= bounds[1]:
            allowed = str(bounds[0]) if bounds[0] == bounds[1] else f"{bounds[0]} to {bounds[1]}"
            raise bad_request(
                "InvalidParameters", f"Invalid parameter: sku.capacity of '{tier}' is {units}, allowed: {allowed}."
            )
        if op.inputs.get("zones") and tier not in {"Premium", "PremiumV2"}:
            raise bad_request("InvalidParameters", f"Availability zones are not supported for Sku Type '{tier}'.")
        kind = str(op.inputs.get("virtualNetworkType", "None"))
        if kind != "None":
            self._require_network(op, tier, kind)
        elif op.inputs.get("publicIpAddressId"):
            raise bad_request("InvalidParameters", "publicIpAddressId is only supported in a virtual network.")

    def _require_network(self, op: Op, tier: str, kind: str) -> None:
        mode = MODES.get((tier, kind))
        if mode is None:
            raise bad_request(
                "InvalidParameters",
                f"Setting up '{kind}' {kind} Virtual Network Type is not supported for Sku Type '{tier}'.",
            )
        subnet_id = dig(op.inputs, "virtualNetworkConfiguration.subnetResourceId")
        body = subnets.body_of(op.state, str(subnet_id)) if subnet_id else None
        vnet = op.get(subnets.vnet_of(str(subnet_id)))
        if body is None or vnet is None:
            raise bad_request("InvalidParameters", "virtualNetworkConfiguration.subnetResourceId must name a subnet.")
        if vnet.location != op.location:
            raise bad_request(
                "InvalidParameters", f"Subnet {subnet_id} is in '{vnet.location}', the service in '{op.location}'."
            )
        _require_delegation(str(subnet_id), body, mode)
        if any(network.prefixlen > mode.longest_prefix for network in subnets.prefixes_of(body)):
            raise bad_request(
                "SubnetTooSmall",
                f"Subnet {subnet_id} is too small for Sku Type '{tier}': /{mode.longest_prefix} is the smallest "
                "allowed.",
            )
        if not dig(body, "networkSecurityGroup.id"):
            raise bad_request("NetworkSecurityGroupRequired", f"Subnet {subnet_id} must have a network security group.")
        others = [user for user in subnets.users(op.state, str(subnet_id)) if user.id.lower() != op.id.lower()]
        if mode.dedicated and others:
            raise bad_request(
                "SubnetNotDedicated",
                f"Subnet {subnet_id} must be dedicated to one service; it is used by {others[0].id}.",
            )

    def _built_in(self, op: Op) -> None:
        """Groups every service is born with; without them no product can be made visible."""
        for group in ("administrators", "developers", "guests"):
            group_id = f"{op.id}/groups/{group}"
            if op.state.get(group_id) is None:
                op.state.put(
                    Resource(
                        id=group_id,
                        token="azure-native:apimanagement:Group",  # noqa: S106 - a type
                        created=op.now,
                        managed_by=op.id,
                        properties={
                            "name": group,
                            "displayName": group.capitalize(),
                            "builtIn": True,
                            "type": "system",
                        },
                    )
                )


def _require_delegation(subnet_id: str, body: dict[str, Any], mode: Mode) -> None:
    present = subnets.delegations(body)
    if mode.delegation and mode.delegation not in present:
        raise bad_request(
            "SubnetMissingRequiredDelegation",
            f"Subnet {subnet_id} requires any of the following delegation(s) [{mode.delegation}] to reference service "
            f"association link {subnet_id}/serviceAssociationLinks/AppServiceLink.",
        )
    if mode.delegation is None and present:
        raise bad_request(
            "SubnetHasDelegations",
            f"Subnet {subnet_id} is delegated to {', '.join(sorted(present))}; injection needs a subnet without "
            "delegation.",
        )


def _endpoints(op: Op) -> bool:
    return any(user.key == "network:PrivateEndpoint" for user in op.state.referrers(op.id, exclude_inside=op.id))
