"""What Azure's errors mean and what to do next: one plain sentence each, for a person at a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from plan.azure.model import AzurePlan

LOG_TAIL = 400
"""Characters of a node's log that a sentence may carry."""


NIC_HELD_S = 180
"""How long Azure keeps an interface for a VM that failed or went (docs/facts/azure.md#interfaces-held-back)."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, and the next step; `again_in_s`: one more try may work after so many seconds of waiting."""

    what: str
    next_step: str
    again_in_s: int | None = None

    def __str__(self) -> str:
        return f"{self.what} {self.next_step}"


def explain(text: str, plan: AzurePlan) -> Failure | None:
    """The first known failure in an engine's output, or None."""
    flat = " ".join(text.split())
    for expression, explained in _KNOWN.items():
        if match := re.search(expression, flat, re.IGNORECASE):
            if callable(explained):
                return explained(match, plan)
            what, next_step = (sentence.format(found=match, plan=plan) for sentence in explained)
            return Failure(what, next_step)
    return None


def _quota(match: re.Match[str], plan: AzurePlan) -> Failure:
    size = plan.compute.size
    needed = size.vcpus * len(plan.nodes)
    limit = re.search(r"Current Limit: (\d+)", match.string)
    granted = f" (the limit is {limit.group(1)})" if limit else ""
    return Failure(
        f"The vCPU quota for {size.quota_family} in {plan.location} is used up{granted}: "
        f"{len(plan.nodes)} x {size.name} needs {needed}.",
        f"Ask for {needed} vCPUs of that family (Azure portal, Quotas), or lower nodes.count, then run `up` again: "
        "what was created is kept.",
    )


def _capacity(match: re.Match[str], plan: AzurePlan) -> Failure:
    """Azure has no free machine; this is not a quota (docs/facts/azure.md#quota-is-not-capacity)."""
    where = f"zone {plan.compute.zone} of {plan.location}" if plan.compute.zone else plan.location
    return Failure(
        f"Azure has no free {plan.compute.size.name} in {where} right now ({match.group(1)}); quota does not help.",
        "Run `up` again later, or change nodes.zone or the region; what was created is kept.",
    )


def _not_serving(match: re.Match[str], _: AzurePlan) -> Failure:
    said = match.group(1).strip(" '.") or "it gave no reason"
    return Failure(
        f"The node came up but does not serve; its log ends: {said[-LOG_TAIL:]}",
        "Correct the cause and run `up` again: it applies the bundle again and keeps the VM.",
    )


def _interface_held(_: re.Match[str], plan: AzurePlan) -> Failure:
    return Failure(
        f"Azure keeps a network interface of {plan.stack}'s nodes for {NIC_HELD_S} seconds: the VM before it failed or "
        "was deleted.",
        "Run `up` again in three minutes: what was created is kept.",
        NIC_HELD_S,
    )


def _address_taken(match: re.Match[str], plan: AzurePlan) -> Failure:
    address, holder = match.groups()
    if f"/resourcegroups/{plan.names.resource_group}/".lower() not in holder.lower():
        return Failure(
            f"The address {address} belongs to somebody else's network interface: {holder}.",
            "Choose another network.nodes_subnet, then run `up` again: what was created is kept.",
        )
    return replace(
        _interface_held(match, plan), what=f"The address {address} is not free yet: Azure keeps a deleted node's."
    )


_PURGE = "or set name_salt to get other names, then run `up` again."

_KNOWN: Mapping[str, tuple[str, str] | Callable[[re.Match[str], AzurePlan], Failure]] = {
    r"exceeding approved .* quota|QuotaExceeded": _quota,
    r"(SkuNotAvailable|(?:Zonal)?AllocationFailed|Overconstrained(?:Zonal)?AllocationRequest)": _capacity,
    r"NicReservedForAnotherVm": _interface_held,
    r"private IP address (\S+) which is already allocated to resource ([^\s\"']+?)\.?(?:[\s\"']|$)": _address_taken,
    r"ServiceAlreadyExistsInSoftDeletedState": (
        "The gateway's name {plan.names.gateway} still belongs to a deleted service: Azure keeps it for 48 hours.",
        "Run `az apim deletedservice purge --service-name {plan.names.gateway} --location {plan.location}`, " + _PURGE,
    ),
    r"vault .*(?:deleted but recoverable|soft.?deleted)|ConflictError.*deleted": (
        "The key vault's name {plan.names.key_vault} still belongs to a deleted vault.",
        "Run `az keyvault purge --name {plan.names.key_vault} --location {plan.location}`, " + _PURGE,
    ),
    r"VMExtensionProvisioningError.*?\[stdout\]([^\[]*?)(?:'\.|\[stderr\]|$)": _not_serving,
    r"Changing property '([^']+)' is not allowed": (
        "Azure can't change {found[1]} of an existing VM.",
        "This program should have replaced the VM; please report it with the preview's output.",
    ),
    r"InUseSubnetCannotBeDeleted": (
        "A subnet is still in use: API Management gives its subnet back some minutes after it is gone.",
        "Run `destroy` again in a few minutes.",
    ),
    r"multiple zones with overlapping namespaces.*? with '([^']+)'": (
        "The VNet resolves {found[1]} in another private DNS zone already, and takes one of each name.",
        "Put that zone's ARM id into network.private_dns_zones and run `up` again: what was created is kept.",
    ),
    r"already existing resource '?(\S+?/service/[^/\s']+)/([^\s']+)": (
        "API Management has {found[2]} already, and this stack did not make it.",
        "Set gateway.existing.prefix to a word that nobody else uses in that service, then run `up` again.",
    ),
    r"API path '([^']*)' is already used|(?:same|identical) Path": (
        "Another API of that API Management service has the path {plan.gateway.api_path} already.",
        "Choose another gateway.api_path, such as {plan.stack}/v1, then run `up` again: what was created is kept.",
    ),
    r"AnotherOperationInProgress|another operation on this or dependent resource": (
        "Azure was still busy with another change to the same resource.",
        "Run the command again: what was done is kept.",
    ),
    r"Product '([^']+)' has subscriptions": (
        "Product {found[1]} has subscriptions that this program did not make; Azure does not delete it.",
        "See whose: `infra products -s {plan.stack}`. Move or delete them in the portal, or keep the product with "
        "`published: false`.",
    ),
    r"publicNetworkAccess.{0,80}is not enabled during service creation": (
        "Azure does not create a gateway whose public endpoint is closed.",
        "Set gateway.public_access to enabled, run `up`, then set it to disabled and run `up` again.",
    ),
    r"Operation on (\w+) SKU is only supported in the api-versions": (
        "Azure does not take tier {found[1]} with the API version of the installed azure-native release.",
        "Take a newer pulumi-azure-native (requirements/infra.in, `make lock`), or tier StandardV2.",
    ),
    r"is protected|cannot be deleted.*protect": (
        "Data and gateway of `{plan.stack}` are protected from deletion.",
        "If you mean it: `pulumi state unprotect --all -s {plan.stack}`, then `destroy` again.",
    ),
    r"DefaultAzureCredential|az login|no credentials": (
        "There are no Azure credentials here.",
        "Run `az login` (or set ARM_* variables) and try again.",
    ),
}
"""By a regular expression of Azure's words: two sentences, `found` (its match) and `plan` filled in, or their maker."""
