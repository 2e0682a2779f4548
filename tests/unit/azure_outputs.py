"""What Azure answers, beyond a resource's own inputs, for the outputs that this program reads.

An output that is not declared here (or in a test's `outputs=`) becomes a text that `run_program` refuses to find
anywhere: a component that reads it fails in update mode instead of deploying the word `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulator.azure.sdk.paths import SUBSCRIPTION, TENANT

CANARY = "CANARY"
"""Every secret that tests feed in starts with this, so that a leak is easy to see and to search for."""

Outputs = Callable[[Mapping[str, Any]], dict[str, Any]]


def _guid(name: str, kind: int) -> str:
    """A readable, stable stand-in for a GUID that Azure makes up."""
    return f"{kind:08d}-0000-4000-8000-{sum(name.encode()):012d}"


def _vault(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {"properties": {"vaultUri": f"https://{inputs['vaultName']}.vault.azure.net/"}}


def _secret(inputs: Mapping[str, Any]) -> dict[str, Any]:
    uri = f"https://{inputs['vaultName']}.vault.azure.net/secrets/{inputs['secretName']}"
    return {"properties": {"secretUri": uri, "secretUriWithVersion": f"{uri}/0123456789abcdef"}}


def _identity(inputs: Mapping[str, Any]) -> dict[str, Any]:
    name = inputs["resourceName"]
    return {"principalId": _guid(name, 1), "clientId": _guid(name, 2), "tenantId": TENANT}


def _gateway(inputs: Mapping[str, Any]) -> dict[str, Any]:
    host = f"https://{inputs['serviceName']}"
    urls = {"gatewayUrl": f"{host}.azure-api.net", "developerPortalUrl": f"{host}.developer.azure-api.net"}
    internal = inputs.get("virtualNetworkType") == "Internal"
    return {**urls, **({"privateIPAddresses": ["10.0.1.4"]} if internal else {})}


def _existing_gateway(arguments: Mapping[str, Any]) -> dict[str, Any]:
    group, name = arguments["resourceGroupName"], arguments["serviceName"]
    provider = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.ApiManagement"
    return {"id": f"{provider}/service/{name}", **_gateway(arguments)}


OUTPUTS: dict[str, Outputs] = {
    "network:PublicIPAddress": lambda _: {"ipAddress": "203.0.113.10"},
    "network:PublicIPPrefix": lambda _: {"ipPrefix": "203.0.113.10/31"},
    "managedidentity:UserAssignedIdentity": _identity,
    "keyvault:Vault": _vault,
    "keyvault:Secret": _secret,
    "compute:VirtualMachine": lambda inputs: {"vmId": _guid(inputs["vmName"], 3)},
    "compute:VirtualMachineRunCommandByVirtualMachine": lambda _: {"provisioningState": "Succeeded"},
    "operationalinsights:Workspace": lambda inputs: {"customerId": _guid(inputs["workspaceName"], 4)},
    "applicationinsights:Component": lambda _: {
        "connectionString": f"InstrumentationKey={CANARY}-insights",
        "instrumentationKey": f"{CANARY}-insights",
    },
    "apimanagement:ApiManagementService": _gateway,
}

CALLS: dict[str, Outputs] = {
    "compute:getVirtualMachineRunCommandByVirtualMachine": lambda _: {
        "provisioningState": "Succeeded",
        "instanceView": {"executionState": "Succeeded"},
        "parameters": [{"name": "HUDDLE_ATTEMPT", "value": "1"}],
    },
    "authorization:getClientConfig": lambda _: {
        "clientId": _guid("client", 5),
        "objectId": _guid("object", 5),
        "subscriptionId": SUBSCRIPTION,
        "tenantId": TENANT,
    },
    "apimanagement:getApiManagementService": _existing_gateway,
    # Invokes carry no secret mark, whatever they return: wrapping them is the component's work.
    "apimanagement:listSubscriptionSecrets": lambda arguments: {
        "primaryKey": f"{CANARY}-{arguments['sid']}-primary",
        "secondaryKey": f"{CANARY}-{arguments['sid']}-secondary",
    },
}
