"""DNS names of a gateway inside the VNet, which Azure does not create (docs/facts/api-management.md#internal-names)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import privatedns

from components.private_dns import PrivateDns, PrivateDnsArgs
from components.scope import StackScope
from plan.azure.gateway_model import DOMAIN

_CLASSIC_HOSTS = ("", "portal", "developer", "management", "scm")
_V2_HOSTS = ("",)
_TTL_S = 300


@dataclass(frozen=True)
class InternalDnsArgs:
    """`addresses` are the gateway's private ones, as Azure tells them; `known` is the address that the stack file says.

    The VNet is the one that `subnet_id` belongs to.
    """

    scope: StackScope
    subnet_id: pulumi.Input[str]
    addresses: pulumi.Output[Sequence[str] | None]
    known: str | None
    classic: bool


class InternalDns(pulumi.ComponentResource):
    """A private zone and an address record for each of the gateway's names."""

    zones: tuple[str, ...]

    def __init__(self, name: str, args: InternalDnsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("h100:gateway:InternalDns", name, None, opts)
        self.zones = zone_names(args.scope.names.gateway, classic=args.classic)
        dns = PrivateDns(
            f"{name}-zones",
            PrivateDnsArgs(
                scope=args.scope,
                vnet_id=pulumi.Output.from_input(args.subnet_id).apply(vnet_of),
                zones=self.zones,
            ),
            pulumi.ResourceOptions(parent=self),
        )
        gateway = args.scope.names.gateway
        # What Azure never tells is unknown in each preview, so an address that is known must not be made from it.
        addresses = (
            pulumi.Output.from_input([args.known])
            if args.known
            else args.addresses.apply(lambda told: told_addresses(told, gateway))
        )
        for zone in self.zones:
            privatedns.PrivateRecordSet(
                f"{name}-{zone}",
                resource_group_name=args.scope.resource_group_name,
                # From the zone's id, so that the record waits for the zone.
                private_zone_name=dns.zone_ids[zone].apply(lambda zone_id: zone_id.rpartition("/")[2]),
                relative_record_set_name="@",
                record_type="A",
                ttl=_TTL_S,
                a_records=addresses.apply(_records),
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({"zones": list(self.zones)})


def zone_names(service: str, *, classic: bool) -> tuple[str, ...]:
    """One zone for each name: a zone for all of azure-api.net would hide everybody else's gateways from the VNet."""
    hosts = _CLASSIC_HOSTS if classic else _V2_HOSTS
    return tuple(".".join(filter(None, (service, host, DOMAIN))) for host in hosts)


def vnet_of(subnet_id: str) -> str:
    """The VNet's id, from a subnet's."""
    return subnet_id.partition("/subnets/")[0]


def told_addresses(addresses: Sequence[str] | None, gateway: str) -> Sequence[str]:
    """The gateway's addresses as Azure tells them.

    Raises:
        pulumi.RunError: it tells none. Its description of the property leaves PremiumV2 out
            (docs/facts/api-management.md#internal-names).
    """
    if addresses:
        return addresses
    raise pulumi.RunError(
        f"Azure made the gateway {gateway} and does not tell its private address. Look it up in the portal (the "
        "service's overview), write it into gateway.private_address of the stack file, and run `up` again: what was "
        "created is kept."
    )


def _records(addresses: Sequence[str]) -> list[privatedns.ARecordArgs]:
    return [privatedns.ARecordArgs(ipv4_address=address) for address in addresses]
