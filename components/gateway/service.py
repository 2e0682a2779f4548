"""The API Management service itself, with the network and names that its tier needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import apimanagement, network

from components import deletion
from components.gateway.internal_dns import InternalDns, InternalDnsArgs
from components.private_endpoint import PrivateEndpoint, PrivateEndpointArgs
from components.scope import StackScope
from plan.azure.gateway_model import ExistingGatewayPlan, GatewayPlan
from plan.vocabulary import GatewayInbound, PublicAccess

_PROPERTY = "Microsoft.WindowsAzure.ApiManagement.Gateway.Security"
_OLD_PROTOCOLS = ("Protocols.Tls10", "Protocols.Tls11", "Backend.Protocols.Tls10", "Backend.Protocols.Tls11")
_WEAK_CIPHERS = (
    "TripleDes168",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
)
"""Ciphers without forward secrecy, and CBC with SHA-1, as far as Azure can switch them off (SDK, custom_properties)."""


@dataclass(frozen=True)
class ApiManagementArgs:
    """`subnet_id` is the gateway's own, None for a service that is there already.

    `gateway_zone_id` is the DNS zone of inbound private endpoints, None where Azure Policy keeps it; the endpoint waits
    for `endpoint_after`, since Azure changes one child of a VNet at a time.
    """

    scope: StackScope
    gateway: GatewayPlan
    subnet_id: pulumi.Input[str] | None
    endpoint_subnet_id: pulumi.Input[str]
    gateway_zone_id: pulumi.Input[str] | None
    endpoint_after: Sequence[pulumi.Resource]


class ApiManagement(pulumi.ComponentResource):
    """The service, ours or one that is there already. `ready` is what must exist before anything is written into it."""

    name: pulumi.Output[str]
    id: pulumi.Output[str]
    resource_group_name: pulumi.Input[str]
    gateway_url: pulumi.Output[str]
    portal_url: pulumi.Output[str]
    ready: list[pulumi.Resource]
    entities: pulumi.ResourceOptions
    """For what is written into the service: entities of our own service go with it."""

    def __init__(self, name: str, args: ApiManagementArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:Service", name, None, opts)
        if args.gateway.existing is None:
            self._make(name, args)
        else:
            self._find(args.gateway.existing)
        self.register_outputs({"gateway_url": self.gateway_url, "portal_url": self.portal_url})

    def _find(self, existing: ExistingGatewayPlan) -> None:
        """Only looked at: what its owner decided stays, and a wrong id fails the preview."""
        found = apimanagement.get_api_management_service_output(
            resource_group_name=existing.resource_group, service_name=existing.name
        )
        self.name, self.id = pulumi.Output.from_input(existing.name), found.apply(lambda service: str(service.id))
        self.resource_group_name = existing.resource_group
        self.gateway_url = found.apply(lambda service: str(service.gateway_url))
        self.portal_url = found.apply(lambda service: str(service.developer_portal_url))
        self.ready = []
        self.entities = pulumi.ResourceOptions()

    def _make(self, name: str, args: ApiManagementArgs) -> None:
        service = self._service(name, args, self._address(name, args))
        self.name, self.id = service.name, service.id
        self.resource_group_name = args.scope.resource_group_name
        self.gateway_url, self.portal_url = service.gateway_url, service.developer_portal_url
        self.ready = [service, *self._ways_in(name, args, service)]
        self.entities = pulumi.ResourceOptions(transformations=[deletion.with_service(service)])

    def _service(
        self, name: str, args: ApiManagementArgs, address: network.PublicIPAddress | None
    ) -> apimanagement.ApiManagementService:
        scope, gateway = args.scope, args.gateway
        patience = gateway.facts.create_timeout
        return apimanagement.ApiManagementService(
            f"{name}-service",
            resource_group_name=scope.resource_group_name,
            service_name=scope.names.gateway,
            location=scope.location,
            # PremiumV2 is no word of the SDK's enum. Its API version, 2024-05-01, is the first that knows the v2 tiers
            # (Microsoft's overview of them), and Terraform's azurerm makes PremiumV2 with it; not seen by us.
            sku=apimanagement.ApiManagementServiceSkuPropertiesArgs(
                name=gateway.facts.tier.value, capacity=gateway.units
            ),
            publisher_name=gateway.publisher_name,
            publisher_email=gateway.publisher_email,
            # Said, so that a service which had an identity loses it; Terraform's azurerm says it, too.
            identity=apimanagement.ApiManagementServiceIdentityArgs(type=apimanagement.ApimIdentityType.NONE),
            virtual_network_type=gateway.virtual_network_type,
            virtual_network_configuration=apimanagement.VirtualNetworkConfigurationArgs(
                subnet_resource_id=args.subnet_id
            ),
            public_ip_address_id=address.id if address else None,
            public_network_access="Disabled" if gateway.public_access is PublicAccess.DISABLED else "Enabled",
            developer_portal_status=apimanagement.DeveloperPortalStatus.ENABLED,
            legacy_portal_status=apimanagement.LegacyPortalStatus.DISABLED,
            custom_properties=_custom_properties(classic=gateway.facts.classic),
            tags=dict(scope.first_tags),
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=scope.protect,
                custom_timeouts=pulumi.CustomTimeouts(create=patience, update=patience, delete=patience),
            ),
        )

    def _address(self, name: str, args: ApiManagementArgs) -> network.PublicIPAddress | None:
        """A classic gateway in a VNet takes one (docs/facts/api-management.md#classic-injection)."""
        scope = args.scope
        if not args.gateway.has_public_address:
            return None
        return network.PublicIPAddress(
            f"{name}-address",
            resource_group_name=scope.resource_group_name,
            public_ip_address_name=scope.names.gateway_address,
            location=scope.location,
            sku=network.PublicIPAddressSkuArgs(name=network.PublicIPAddressSkuName.STANDARD),
            public_ip_allocation_method=network.IPAllocationMethod.STATIC,
            public_ip_address_version=network.IPVersion.I_PV4,
            # UNVERIFIED whether it still needs a label (docs/facts/api-management.md#classic-injection).
            dns_settings=network.PublicIPAddressDnsSettingsArgs(domain_name_label=scope.names.gateway),
            tags=dict(scope.tags),
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _ways_in(
        self, name: str, args: ApiManagementArgs, service: apimanagement.ApiManagementService
    ) -> list[pulumi.Resource]:
        """What private clients need. An endpoint writes its connection into the service, so others wait for it."""
        match args.gateway.inbound:
            case GatewayInbound.PRIVATE_ENDPOINT:
                endpoint = PrivateEndpoint(
                    f"{name}-inbound",
                    PrivateEndpointArgs(
                        scope=args.scope,
                        endpoint_name="gateway",
                        subnet_id=args.endpoint_subnet_id,
                        target_id=service.id,
                        group_id="Gateway",
                        zone_id=args.gateway_zone_id,
                        after=args.endpoint_after,
                    ),
                    pulumi.ResourceOptions(parent=self),
                )
                return [endpoint.ready]
            case GatewayInbound.INTERNAL if args.subnet_id is not None:
                InternalDns(
                    f"{name}-dns",
                    InternalDnsArgs(
                        scope=args.scope,
                        subnet_id=args.subnet_id,
                        addresses=service.private_ip_addresses,
                        known=args.gateway.private_address,
                        classic=args.gateway.facts.classic,
                    ),
                    pulumi.ResourceOptions(parent=self),
                )
                return []
            case _:
                return []


def _custom_properties(*, classic: bool) -> dict[str, str]:
    """TLS 1.2 and up, on both sides; ciphers can be chosen in classic tiers only (Microsoft's page on v2 tiers)."""
    off = [f"{_PROPERTY}.{protocol}" for protocol in _OLD_PROTOCOLS]
    if classic:
        off += [f"{_PROPERTY}.Ciphers.{cipher}" for cipher in _WEAK_CIPHERS]
    return dict.fromkeys(off, "False")
