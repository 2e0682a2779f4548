"""Virtual networks and subnets: inline or standalone, one write at a time, in use or not."""

# ruff: noqa: ARG002, D102 - `Rules` says what each hook is for and gets
from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar

from simulator.azure.errors import ArmError, bad_request
from simulator.azure.rules.base import Op, Rules, imitates
from simulator.azure.rules.network import bastion_nsg, references, subnets
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource
from simulator.plugin.values import dig, fill


def filled(body: Mapping[str, Any], subnet_id: str, salt: str) -> dict[str, Any]:
    """A subnet body as a GET shows it."""
    subnet = deepcopy(dict(body))
    for parameter in ("resourceGroupName", "virtualNetworkName", "subnetName", "azureApiVersion"):
        subnet.pop(parameter, None)
    fill(
        subnet,
        {
            "id": subnet_id,
            "name": subnet_id.rsplit("/", 1)[-1],
            "type": "Microsoft.Network/virtualNetworks/subnets",
            "provisioningState": "Succeeded",
            "privateEndpointNetworkPolicies": "Disabled",
            "privateLinkServiceNetworkPolicies": "Enabled",
            "delegations": [],
        },
    )
    subnet["etag"] = f'W/"{derived(salt, subnet_id, repr(sorted(body)), length=16)}"'
    for delegation in subnet["delegations"]:
        fill(
            delegation,
            {
                "id": f"{subnet_id}/delegations/{delegation.get('name')}",
                "type": "Microsoft.Network/virtualNetworks/subnets/delegations",
                "provisioningState": "Succeeded",
                "actions": [],
            },
        )
    for endpoint in subnet.get("serviceEndpoints") or []:
        endpoint.setdefault("provisioningState", "Succeeded")
    return subnet


def require_subnet_change(op: Op, subnet_id: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    """What may not change under resources that use the subnet.

    Raises:
        ArmError: the subnet's range or delegation is needed.
    """
    users = subnets.users(op.state, subnet_id)
    if not users:
        return
    if subnets.prefixes_of(before) != subnets.prefixes_of(after):
        prefix = before.get("addressPrefix") or ", ".join(before.get("addressPrefixes") or [])
        raise bad_request(
            "InUsePrefixCannotBeDeleted",
            f"IpPrefix {prefix} on Subnet {subnet_id.rsplit('/', 1)[-1]} has active allocations and cannot be deleted.",
        )
    missing = subnets.delegations(before) - subnets.delegations(after)
    if missing and any(user.key == "apimanagement:ApiManagementService" for user in users):
        raise bad_request(
            "SubnetMissingRequiredDelegation",
            f"Subnet {subnet_id} requires any of the following delegation(s) [{', '.join(sorted(missing))}] to "
            "reference "
            f"service association link {subnet_id}/serviceAssociationLinks/AppServiceLink.",
        )


def _lock(vnet_id: str) -> str:
    return f"vnet:{vnet_id}"


@imitates("network:VirtualNetwork")
class VirtualNetwork(Rules):
    """Microsoft.Network/virtualNetworks."""

    defaults: ClassVar[dict[str, Any]] = {"enableDdosProtection": False, "virtualNetworkPeerings": []}
    typical_seconds = 10.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (_lock(op.id),)

    def create(self, op: Op) -> None:
        space = [subnets.parse(prefix) for prefix in dig(op.inputs, "addressSpace.addressPrefixes", [])]
        if not space:
            raise bad_request("MissingAddressSpace", f"Address space is not specified for virtual network {op.name}.")
        subnets.require_fit(space, self._bodies(op), op.id)
        bastion_nsg.require_on_subnets(op.state, self._bodies(op))

    def update(self, op: Op) -> None:
        self.create(op)
        after = {str(body.get("name")).lower(): body for body in self._bodies(op)}
        for before in (op.old.properties if op.old else {}).get("subnets", []):
            name = str(before["name"])
            subnet_id = f"{op.id}/subnets/{name}"
            if name.lower() in after:
                require_subnet_change(op, subnet_id, before, after[name.lower()])
            elif error := subnets.in_use(op, subnet_id):
                raise error

    def delete(self, op: Op) -> None:
        for subnet in (op.old.properties if op.old else {}).get("subnets", []):
            if error := subnets.in_use(op, f"{op.id}/subnets/{subnet['name']}"):
                raise error

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs["resourceGuid"] = derived(op.state.salt, op.id, "guid")
        outputs["subnets"] = [
            filled(body, f"{op.id}/subnets/{body.get('name')}", op.state.salt) for body in self._bodies(op)
        ]

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        """A PUT with an inline list removes standalone subnets that the list does not name."""
        named = {str(subnet["name"]).lower() for subnet in resource.properties.get("subnets", [])}
        for child in op.state.inside(op.id):
            if child.key == "network:Subnet" and child.name.lower() not in named:
                op.state.remove(child.id)
        return None

    def _bodies(self, op: Op) -> list[dict[str, Any]]:
        """The subnets this PUT leaves: the request's, or the present ones when it is silent (azure-native reads "
        "them)."""
        if "subnets" in op.inputs:
            return list(op.inputs["subnets"])
        return list(op.old.properties.get("subnets", [])) if op.old else []


@imitates("network:Subnet")
class Subnet(Rules):
    """Microsoft.Network/virtualNetworks/subnets as a resource of its own."""

    typical_seconds = 5.0

    def exclusive(self, op: Op) -> tuple[str, ...]:
        return (_lock(subnets.vnet_of(op.id)),)

    def create(self, op: Op) -> None:
        vnet = op.state.get(subnets.vnet_of(op.id))
        assert vnet is not None  # noqa: S101 - the parent was checked before
        others = [s for s in vnet.properties.get("subnets", []) if str(s["name"]).lower() != op.name.lower()]
        space = [subnets.parse(prefix) for prefix in dig(vnet.properties, "addressSpace.addressPrefixes", [])]
        subnets.require_fit(space, [*others, {**op.inputs, "name": op.name}], vnet.id)
        bastion_nsg.require_on_subnets(op.state, [{**op.inputs, "name": op.name}])

    def update(self, op: Op) -> None:
        self.create(op)
        before = subnets.body_of(op.state, op.id)
        if before:
            require_subnet_change(op, op.id, before, op.inputs)

    def delete(self, op: Op) -> None:
        if error := subnets.in_use(op, op.id):
            raise error

    def outputs(self, op: Op, outputs: dict[str, Any]) -> None:
        outputs.update(filled({**op.inputs, "name": op.name}, op.id, op.state.salt))

    def settled(self, op: Op, resource: Resource) -> ArmError | None:
        """Show the subnet in its virtual network too."""
        self._relist(op, [{**filled(resource.properties, op.id, op.state.salt), "name": op.name}])
        return None

    def removed(self, op: Op, resource: Resource) -> None:
        self._relist(op, [])

    def _relist(self, op: Op, own: list[dict[str, Any]]) -> None:
        vnet = op.state.get(subnets.vnet_of(op.id))
        if vnet is not None:
            others = [s for s in vnet.properties.get("subnets", []) if str(s["name"]).lower() != op.name.lower()]
            vnet.properties["subnets"] = [*others, *own]
            found = references.found_in({"subnets": vnet.properties["subnets"]})
            vnet.refs = sorted({ref for ref in found if not ref.startswith(vnet.id.lower())})
