"""Name rules: length, characters and scope of every type's own name.

Facts: docs/facts/azure.md#names and the SDK's own texts. What is unverified there is an assumption here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class NameRule:
    """What a name may look like."""

    param: str
    shortest: int
    longest: int
    pattern: str
    words: str


_NETWORK: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_NETWORK_WORDS: Final = "letters, digits, '_', '.', '-'; first a letter or digit, last a letter, digit or '_'"
_APIM_CHILD: Final = r"[^*#&+:<>?]+"
_APIM_WORDS: Final = "any characters but * # & + : < > ?"


def _network(param: str, shortest: int = 1, longest: int = 80) -> NameRule:
    return NameRule(param, shortest, longest, _NETWORK, _NETWORK_WORDS)


def _child(param: str, longest: int = 256) -> NameRule:
    return NameRule(param, 1, longest, _APIM_CHILD, _APIM_WORDS)


RULES: Final[dict[str, NameRule]] = {
    "resources:ResourceGroup": NameRule(
        "resourceGroupName", 1, 90, r"[\w.()-]*[\w()-]", "letters, digits, '_', '-', '.', '(', ')'; not ending in '.'"
    ),
    "network:VirtualNetwork": _network("virtualNetworkName", 2, 64),
    "network:Subnet": _network("subnetName"),
    "network:NetworkSecurityGroup": _network("networkSecurityGroupName"),
    "network:NetworkInterface": _network("networkInterfaceName"),
    "network:PublicIPAddress": _network("publicIpAddressName"),
    "network:PublicIPPrefix": _network("publicIpPrefixName"),
    "network:NatGateway": _network("natGatewayName"),
    "network:BastionHost": _network("bastionHostName"),
    "network:LoadBalancer": _network("loadBalancerName"),
    "network:PrivateEndpoint": _network("privateEndpointName", 2, 64),
    "privatedns:PrivateZone": NameRule(
        "privateZoneName",
        1,
        253,
        r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63}){1,33}",
        "2 to 34 labels of letters, digits, '_', '-', joined by '.'",
    ),
    "privatedns:VirtualNetworkLink": _network("virtualNetworkLinkName"),
    "compute:VirtualMachine": NameRule(
        "vmName",
        1,
        64,
        r"""[^_\\/"\[\]:|<>+=;,?*@&\s][^\\/"\[\]:|<>+=;,?*@&\s]*(?<![.-])""",
        """no spaces or \\ / " [ ] : | < > + = ; , ? * @ &; not starting with '_', not ending in '.' or '-'""",
    ),
    "compute:Disk": NameRule("diskName", 1, 80, r"[A-Za-z0-9_.-]+", "letters, digits, '_', '.', '-'"),
    "keyvault:Vault": NameRule(
        "vaultName",
        3,
        24,
        r"[A-Za-z](?!.*--)[A-Za-z0-9-]*[A-Za-z0-9]",
        "letters, digits and single '-'; first a letter",
    ),
    "keyvault:Secret": NameRule("secretName", 1, 127, r"[A-Za-z0-9-]+", "letters, digits, '-'"),
    "managedidentity:UserAssignedIdentity": NameRule(
        "resourceName", 3, 128, r"[A-Za-z0-9][A-Za-z0-9_-]*", "letters, digits, '_', '-'; first a letter or digit"
    ),
    "storage:StorageAccount": NameRule("accountName", 3, 24, r"[a-z0-9]+", "lower-case letters and digits"),
    "storage:FileShare": NameRule(
        "shareName", 3, 63, r"[a-z0-9](?!.*--)[a-z0-9-]*[a-z0-9]", "lower-case letters, digits and single '-'"
    ),
    "operationalinsights:Workspace": NameRule(
        "workspaceName", 4, 63, r"[A-Za-z0-9][A-Za-z0-9-]*[A-Za-z0-9]", "letters, digits, '-' inside"
    ),
    "apimanagement:ApiManagementService": NameRule(
        "serviceName",
        1,
        50,
        r"[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?",
        "letters, digits, '-'; first a letter, last no '-'",
    ),
    "apimanagement:Api": _child("apiId"),
    "apimanagement:ApiOperation": _child("operationId", 80),
    "apimanagement:Backend": _child("backendId", 80),
    "apimanagement:Group": _child("groupId"),
    "apimanagement:Logger": _child("loggerId"),
    "apimanagement:NamedValue": _child("namedValueId"),
    "apimanagement:PolicyFragment": _child("id", 80),
    "apimanagement:Product": _child("productId"),
    "apimanagement:Subscription": _child("sid"),
}


def violations(key: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with a resource's own name (nothing, for names not known yet)."""
    rule = RULES.get(key)
    name = inputs.get(rule.param) if rule else None
    if rule is None or not isinstance(name, str):
        return
    if len(name) < rule.shortest:
        yield (
            rule.param,
            f"'{rule.param}' is too short ({len(name)}): at least {rule.shortest} characters required",
        )
    elif len(name) > rule.longest:
        yield rule.param, f"'{rule.param}' is too long ({len(name)}): at most {rule.longest} characters allowed"
    elif not re.fullmatch(rule.pattern, name):
        yield rule.param, f"'{rule.param}' is '{name}', allowed: {rule.words}"
