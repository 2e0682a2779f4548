"""Every resource's name, from the stack's identity alone, checked against Azure's rules before anything is created."""

from __future__ import annotations

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import UNIQUE, StrEnum, verify

from plan.vocabulary import SUBNETS, Segment


@verify(UNIQUE)
class Kind(StrEnum):
    """Resource kinds that have a naming rule of their own."""

    RESOURCE_GROUP = "resource group"
    NETWORK = "network resource"
    VM = "virtual machine"
    DISK = "managed disk"
    IDENTITY = "managed identity"
    WORKSPACE = "Log Analytics workspace"
    INSIGHTS = "Application Insights component"
    KEY_VAULT = "key vault"
    STORAGE = "storage account"
    GATEWAY = "API Management service"
    GATEWAY_CHILD = "API Management entity"


@dataclass(frozen=True)
class NameRule:
    """Length and charset of one kind of name (docs/facts/azure.md#names); `is_global`: unique over all of Azure."""

    min_length: int
    max_length: int
    pattern: str
    allowed: str
    is_global: bool = False


_NETWORK = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
RULES: dict[Kind, NameRule] = {
    Kind.RESOURCE_GROUP: NameRule(1, 90, r"[\w().-]*[\w()-]", "letters, digits, _ - . ( ), not ending with a dot"),
    Kind.NETWORK: NameRule(2, 64, _NETWORK, "letters, digits, _ . -, starting with a letter or digit"),
    Kind.VM: NameRule(1, 63, r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?", "letters, digits and - (it is a host name)"),
    Kind.DISK: NameRule(1, 80, r"[A-Za-z0-9_-]+", "letters, digits, _ and -"),
    Kind.IDENTITY: NameRule(3, 128, r"[A-Za-z0-9][A-Za-z0-9_-]*", "letters, digits, _ and -"),
    Kind.WORKSPACE: NameRule(4, 63, r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?", "letters, digits and -"),
    Kind.INSIGHTS: NameRule(1, 255, r"[\w().-]*[\w()-]", "letters, digits, _ - . ( )"),
    Kind.KEY_VAULT: NameRule(
        3, 24, r"[A-Za-z](?:[A-Za-z0-9]|-(?!-))*[A-Za-z0-9]", "letters, digits, single -, starting with a letter", True
    ),
    Kind.STORAGE: NameRule(3, 24, r"[a-z0-9]+", "lower-case letters and digits", True),
    Kind.GATEWAY: NameRule(
        1, 50, r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?", "letters, digits and -, starting with a letter", True
    ),
    Kind.GATEWAY_CHILD: NameRule(1, 80, r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?", "letters, digits and -"),
}


def problem(kind: Kind, name: str) -> str | None:
    """What is wrong with a name, as a sentence's end, or None."""
    rule = RULES[kind]
    if not rule.min_length <= len(name) <= rule.max_length:
        return f"{kind.value} name {name!r} has {len(name)} characters; allowed: {rule.min_length}-{rule.max_length}"
    if not re.fullmatch(rule.pattern, name):
        return f"{kind.value} name {name!r} is not allowed; allowed: {rule.allowed}"
    return None


def stable_suffix(project: str, stack: str, prefix: str, salt: str) -> str:
    """Six lower-case characters that tell stacks apart in global namespaces; the same for the same stack, always."""
    digest = hashlib.sha256("\0".join((project, stack, prefix, salt)).encode()).digest()
    return base64.b32encode(digest)[:6].decode().lower()


@dataclass(frozen=True)
class Names:
    """The names of one stack's resources. A pure function of prefix, stack and suffix: no incidental renames."""

    prefix: str
    stack: str
    suffix: str
    gpu: str  # h100 or h200, as in docs/facts/original-systems.md#two-nodes-in-azure

    @property
    def base(self) -> str:
        """`huddleai-dev`: what names within the resource group start with."""
        return f"{self.prefix}-{self.stack}"

    @property
    def resource_group(self) -> str:
        """Holds everything the stack owns."""
        return f"{self.base}-rg"

    @property
    def vnet(self) -> str:
        """The stack's own VNet; unused where an existing one is named."""
        return f"{self.base}-vnet"

    def subnet(self, segment: Segment) -> str:
        """A subnet; Azure fixes Bastion's."""
        return "AzureBastionSubnet" if segment is Segment.BASTION else segment.value

    def shared_subnet(self, segment: Segment) -> str:
        """A subnet in a VNet that others use too."""
        return self.subnet(segment) if segment is Segment.BASTION else f"{self.base}-{segment.value}"

    def nsg(self, segment: Segment) -> str:
        """The security group of a subnet."""
        return f"{self.base}-{segment.value}-nsg"

    @property
    def nat_gateway(self) -> str:
        """The NAT gateway: the nodes' way out."""
        return f"{self.base}-nat"

    @property
    def nat_prefix(self) -> str:
        """The NAT gateway's public IP prefix: what partners put on their allow-lists."""
        return f"{self.base}-nat-prefix"

    @property
    def nat_address(self) -> str:
        """The NAT gateway's public IP address."""
        return f"{self.base}-nat-ip"

    @property
    def bastion(self) -> str:
        """The Bastion host, the operators' way in."""
        return f"{self.base}-bastion"

    @property
    def bastion_address(self) -> str:
        """Azure Bastion's public IP address."""
        return f"{self.base}-bastion-ip"

    @property
    def gateway_address(self) -> str:
        """Public IP address of a classic, injected gateway."""
        return f"{self.base}-gateway-ip"

    @property
    def identity(self) -> str:
        """The managed identity by which nodes read their secrets."""
        return f"{self.base}-nodes-id"

    @property
    def key_vault(self) -> str:
        """Global, at most 24 characters: the prefix and stack are cut, never the suffix."""
        room = RULES[Kind.KEY_VAULT].max_length - len(self.suffix) - len("-kv-")
        return f"{self.base[:room].rstrip('-')}-kv-{self.suffix}"

    @property
    def storage_account(self) -> str:
        """Global, lower-case and digits only."""
        room = RULES[Kind.STORAGE].max_length - len(self.suffix)
        return f"{re.sub('[^a-z0-9]', '', self.base)[:room]}{self.suffix}"

    @property
    def model_disk(self) -> str:
        """The disk that all nodes attach, where model_store.kind is shared-disk."""
        return f"{self.base}-models"

    @property
    def file_share(self) -> str:
        """The NFS share, where model_store.kind is azure-files."""
        return "models"

    @property
    def nfs_source(self) -> str:
        """The share as Azure Files exports it, `<account>.file.core.windows.net:/<account>/<share>`."""
        return f"{self.storage_account}.file.core.windows.net:/{self.storage_account}/{self.file_share}"

    @property
    def workspace(self) -> str:
        """The Log Analytics workspace: logs of nodes and gateway."""
        return f"{self.base}-logs"

    @property
    def insights(self) -> str:
        """The Application Insights component: the gateway's traces and token metrics."""
        return f"{self.base}-insights"

    @property
    def action_group(self) -> str:
        """The action group: who is notified when an alert fires."""
        return f"{self.base}-alerts"

    @property
    def workbook(self) -> str:
        """A workbook's resource name, which Azure wants to be a GUID: the stack's own, always the same."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.workspace}/{self.suffix}"))

    @property
    def workbook_title(self) -> str:
        """The workbook's title in the portal."""
        return f"{self.base}: gateway"

    def alert(self, name: str) -> str:
        """The rule for one alert of components/alerts.yaml, by its name there."""
        return f"{self.base}-{name}"

    @property
    def gateway(self) -> str:
        """API Management: global, and its DNS name."""
        return f"{self.base}-{self.suffix}"

    def node(self, number: int) -> str:
        """A node's VM and host name, counted from 1: huddleai-h100-node-1."""
        return f"{self.prefix}-{self.gpu}-node-{number}"

    def nic(self, number: int) -> str:
        """The one network interface of a node, by its number from 1."""
        return f"{self.node(number)}-nic"

    def os_disk(self, number: int) -> str:
        """The OS disk of a node, by its number from 1."""
        return f"{self.node(number)}-os"

    def shutdown_schedule(self, number: int) -> str:
        """Azure demands exactly this name (docs/facts/azure.md#auto-shutdown)."""
        return f"shutdown-computevm-{self.node(number)}"

    def endpoint(self, service: str) -> str:
        """The private endpoint of a service, such as `vault`."""
        return f"{self.base}-{service}-pe"

    def checks(self, node_count: int) -> Iterator[tuple[Kind, str]]:
        """Every name that the stack uses, with its kind."""
        yield Kind.RESOURCE_GROUP, self.resource_group
        for name in (
            self.vnet,
            self.nat_gateway,
            self.nat_prefix,
            self.nat_address,
            self.bastion,
            self.gateway_address,
        ):
            yield Kind.NETWORK, name
        for segment in SUBNETS:
            yield Kind.NETWORK, self.nsg(segment)
            yield Kind.NETWORK, self.shared_subnet(segment)
        for number in range(1, node_count + 1):
            yield Kind.VM, self.node(number)
            yield Kind.NETWORK, self.nic(number)
            yield Kind.DISK, self.os_disk(number)
        yield Kind.DISK, self.model_disk
        yield Kind.IDENTITY, self.identity
        yield Kind.WORKSPACE, self.workspace
        yield Kind.INSIGHTS, self.insights
        yield Kind.INSIGHTS, self.action_group
        yield Kind.KEY_VAULT, self.key_vault
        yield Kind.STORAGE, self.storage_account
        yield Kind.GATEWAY, self.gateway
