"""What Azure's errors mean and what to do next: one plain sentence each, for a person at a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from infra.operations import run_command_report
from plan.azure.model import AzurePlan

LOG_TAIL = 400
"""Characters of a node's log that a sentence may carry."""
_STATUS = "/var/lib/huddle/status.json"
_STREAMS = "/var/lib/waagent/run-command-handler/download/huddle-{prepare,apply}/*/std*"
"""Where the handler keeps all that a command said (docs/facts/azure.md#a-run-commands-failure)."""


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
        f"The vCPU quota for {plan.compute.quota_name} in {plan.location} is used up{granted}: "
        f"{len(plan.nodes)} x {size.name} needs {needed}.",
        f"Ask for {needed} vCPUs of it (Azure portal, Quotas), or lower nodes.count, then run `up` again: "
        "what was created is kept.",
    )


def _capacity(match: re.Match[str], plan: AzurePlan) -> Failure:
    """Azure has no free machine; this is not a quota (docs/facts/azure.md#quota-is-not-capacity)."""
    where = f"zone {plan.compute.zone} of {plan.location}" if plan.compute.zone else plan.location
    return Failure(
        f"Azure has no free {plan.compute.size.name} in {where} right now ({match.group(1)}); quota does not help.",
        "Run `up` again later, or change nodes.zone or the region; what was created is kept.",
    )


def _not_serving(match: re.Match[str], plan: AzurePlan) -> Failure:
    report = run_command_report.find(match.string)
    if report is None:
        return Failure("The node came up but does not serve, and Azure shows no log of that.", _log_on_node(plan))
    said = " ".join(report.said.split())[-LOG_TAIL:]
    if report.exit_code == run_command_report.KILLED:
        return _too_slow(match, plan, f"; its log ends: {said}" if said else "")
    return Failure(
        f"The node came up but does not serve; its log ends: {said or 'it gave no reason'}",
        "Correct the cause and run `up` again: it applies the bundle again and keeps the VM.",
    )


def _too_slow(_: re.Match[str], plan: AzurePlan, log: str = "") -> Failure:
    """The apply program has deadlines of its own, so this is rare: a frozen machine, or a silent agent."""
    return Failure(
        f"A node did not serve in the time that Azure gives a command{log or ', and Azure shows no log of that'}.",
        _log_on_node(plan),
    )


def _log_on_node(plan: AzurePlan) -> str:
    group, node = plan.names.resource_group, plan.nodes[0].name
    return (
        f"The log lies on the node, in {_STATUS} and {_STREAMS}: `az vm run-command invoke -g {group} -n {node} "
        f"--command-id RunShellScript --scripts 'cat {_STATUS}'` shows it. Then run `up` again: it goes on with what "
        "is done and keeps the VM."
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


def _already_there(match: re.Match[str], plan: AzurePlan) -> Failure:
    found = match[1]
    if plan.gateway.existing is not None and "/service/" in found.lower():
        return Failure(
            f"API Management has {found.rpartition('/service/')[2]} already, and this stack did not make it.",
            "Set gateway.existing.prefix to a word that nobody else uses in that service, then run `up` again.",
        )
    return Failure(
        f"{found} stands in Azure, but not in the stack's state: a destroy was interrupted, or it is somebody else's.",
        f"Run `make destroy STACK={plan.stack}` to its end, then `up` again; `infra leaks -s {plan.stack}` says what "
        "is left. If another stack has these names, set name_prefix to another word.",
    )


def _deleted_gateway(_: re.Match[str], plan: AzurePlan) -> Failure:
    """`infra purge` leaves a protected stack alone: what it deleted can be restored."""
    name = plan.names.gateway
    by_hand = f"az apim deletedservice purge --service-name {name} --location {plan.location}"
    purge = by_hand if plan.protect else f"infra purge -s {plan.stack}"
    return Failure(
        f"The gateway's name {name} still belongs to a deleted service: Azure keeps it for 48 hours.",
        f"Run `{purge}`, {_PURGE}",
    )


def _deleted_vault(_: re.Match[str], plan: AzurePlan) -> Failure:
    """A protected vault cannot be purged (docs/facts/azure.md#key-vault)."""
    what = f"The key vault's name {plan.names.key_vault} still belongs to a deleted vault"
    if plan.protect:
        return Failure(
            f"{what}, which Azure keeps for its whole retention.",
            "Nobody can purge it. Set name_salt to get other names, then run `up` again.",
        )
    return Failure(f"{what}.", f"Run `infra purge -s {plan.stack}`, {_PURGE}")


def _missing_right(match: re.Match[str], plan: AzurePlan) -> Failure:
    if match.group(1).startswith("Microsoft.Authorization/roleAssignments/"):
        return Failure(
            "Your login may not assign roles, which the nodes need to read their secrets.",
            f"Get the role *Role Based Access Control Administrator* (or Owner) on {plan.names.resource_group}, "
            "then run `up` again.",
        )
    return Failure(
        f"Your login lacks the right {match.group(1)}.",
        "docs/runbooks/deploy.md, step 0, names the roles that `up` needs; get them, then run `up` again.",
    )


_PURGE = "or set name_salt to get other names, then run `up` again."

_KNOWN: Mapping[str, tuple[str, str] | Callable[[re.Match[str], AzurePlan], Failure]] = {
    # First, since it quotes a node's log, which may say anything.
    r"VMExtensionProvisioningError.*?(?:executionState|RunCommandHandlerLinux)": _not_serving,
    r"exceeding approved .* quota|QuotaExceeded": _quota,
    r"(SkuNotAvailable|(?:Zonal)?AllocationFailed|Overconstrained(?:Zonal)?AllocationRequest)": _capacity,
    r"NicReservedForAnotherVm": _interface_held,
    r"private IP address (\S+) which is already allocated to resource ([^\s\"']+?)\.?(?:[\s\"']|$)": _address_taken,
    r"ServiceAlreadyExistsInSoftDeletedState": _deleted_gateway,
    r"cannot create already existing resource '(\S+/vaults/\S+/secrets/(\S+))'": (
        "The vault still holds the secret {found[2]} of an earlier time: secrets stay in their vault.",
        "Take it over: docs/runbooks/keys.md, *A secret that is there already*.",
    ),
    r"vault .*(?:deleted but recoverable|soft.?deleted)|ConflictError.*deleted": _deleted_vault,
    r"not registered to use namespace '([^']+)'": (
        "Your subscription has not registered the resource provider {found[1]}.",
        "Run `az provider register --namespace {found[1]} --wait`, which needs rights on the subscription, then `up` "
        "again.",
    ),
    r"does not have authorization to perform action '([^']+)'": _missing_right,
    r"NetworkSecurityGroupNotCompliantForAzureBastionSubnet": (
        "Azure misses one of its eight rules on Bastion's subnet.",
        "Compare `infra ports -s {plan.stack}` with https://learn.microsoft.com/azure/bastion/bastion-nsg and report "
        "the difference; `access.bastion.sku: none` comes up without Bastion.",
    ),
    r"Use of TrustedLaunch setting is not supported": (
        "The image {plan.compute.image.offer} {plan.compute.image.version} does not take Trusted Launch.",
        "Set nodes.image.security to standard, then run `up` again.",
    ),
    r"VMExtensionProvisioningTimeout": _too_slow,
    r"Cannot modify extensions in the VM when the VM is not running": (
        "A node does not run (a nightly stop or an eviction deallocates it), so that Azure changes nothing on it.",
        "Run `infra start -s {plan.stack}`, then `up` again.",
    ),
    r"Changing property '([^']+)' is not allowed": (
        "Azure can't change {found[1]} of an existing VM.",
        "This program should have replaced the VM; please report it with the preview's output.",
    ),
    r"InUseSubnetCannotBeDeleted": (
        "A subnet is still in use: API Management gives its subnet back minutes to hours after it is gone.",
        "Run `destroy` again later.",
    ),
    r"multiple zones with overlapping namespaces.*? with '([^']+)'": (
        "The VNet resolves {found[1]} in another private DNS zone already, and takes one of each name.",
        "Put that zone's ARM id into network.private_dns_zones and run `up` again: what was created is kept.",
    ),
    r"cannot create already existing resource '([^']+)'": _already_there,
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
