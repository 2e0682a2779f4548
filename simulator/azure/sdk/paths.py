"""ARM ids: one path template per resource type, and a derived one for types not listed.

Templates are facts of the ARM API (the same paths stand in Azure's public REST reference and in azure-native's
`versions/v3.yaml`). `RG` stands for `/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simulator.azure.errors import PlainError
from simulator.azure.sdk.schema import ResourceSchema

SUBSCRIPTION: Final = "00000000-0000-0000-0000-000000000000"
TENANT: Final = "11111111-1111-1111-1111-111111111111"

_GROUP: Final = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
_APIM: Final = "RG/Microsoft.ApiManagement/service/{serviceName}"
_API: Final = f"{_APIM}/apis/{{apiId}}"
_PRODUCT: Final = f"{_APIM}/products/{{productId}}"

TEMPLATES: Final[dict[str, str]] = {
    "resources:ResourceGroup": _GROUP,
    "network:VirtualNetwork": "RG/Microsoft.Network/virtualNetworks/{virtualNetworkName}",
    "network:Subnet": "RG/Microsoft.Network/virtualNetworks/{virtualNetworkName}/subnets/{subnetName}",
    "network:NetworkSecurityGroup": "RG/Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}",
    "network:SecurityRule": (
        "RG/Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}/securityRules/{securityRuleName}"
    ),
    "network:NatGateway": "RG/Microsoft.Network/natGateways/{natGatewayName}",
    "network:PublicIPAddress": "RG/Microsoft.Network/publicIPAddresses/{publicIpAddressName}",
    "network:PublicIPPrefix": "RG/Microsoft.Network/publicIPPrefixes/{publicIpPrefixName}",
    "network:NetworkInterface": "RG/Microsoft.Network/networkInterfaces/{networkInterfaceName}",
    "network:BastionHost": "RG/Microsoft.Network/bastionHosts/{bastionHostName}",
    "network:LoadBalancer": "RG/Microsoft.Network/loadBalancers/{loadBalancerName}",
    "network:RouteTable": "RG/Microsoft.Network/routeTables/{routeTableName}",
    "network:PrivateEndpoint": "RG/Microsoft.Network/privateEndpoints/{privateEndpointName}",
    "network:PrivateDnsZoneGroup": (
        "RG/Microsoft.Network/privateEndpoints/{privateEndpointName}/privateDnsZoneGroups/{privateDnsZoneGroupName}"
    ),
    "privatedns:PrivateZone": "RG/Microsoft.Network/privateDnsZones/{privateZoneName}",
    "privatedns:VirtualNetworkLink": (
        "RG/Microsoft.Network/privateDnsZones/{privateZoneName}/virtualNetworkLinks/{virtualNetworkLinkName}"
    ),
    "privatedns:PrivateRecordSet": (
        "RG/Microsoft.Network/privateDnsZones/{privateZoneName}/{recordType}/{relativeRecordSetName}"
    ),
    "compute:VirtualMachine": "RG/Microsoft.Compute/virtualMachines/{vmName}",
    "compute:VirtualMachineRunCommandByVirtualMachine": (
        "RG/Microsoft.Compute/virtualMachines/{vmName}/runCommands/{runCommandName}"
    ),
    "compute:VirtualMachineExtension": "RG/Microsoft.Compute/virtualMachines/{vmName}/extensions/{vmExtensionName}",
    "compute:Disk": "RG/Microsoft.Compute/disks/{diskName}",
    "compute:ProximityPlacementGroup": "RG/Microsoft.Compute/proximityPlacementGroups/{proximityPlacementGroupName}",
    "compute:AvailabilitySet": "RG/Microsoft.Compute/availabilitySets/{availabilitySetName}",
    "devtestlab:GlobalSchedule": "RG/Microsoft.DevTestLab/schedules/{name}",
    "keyvault:Vault": "RG/Microsoft.KeyVault/vaults/{vaultName}",
    "keyvault:Secret": "RG/Microsoft.KeyVault/vaults/{vaultName}/secrets/{secretName}",
    "managedidentity:UserAssignedIdentity": "RG/Microsoft.ManagedIdentity/userAssignedIdentities/{resourceName}",
    "authorization:RoleAssignment": "/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
    "storage:StorageAccount": "RG/Microsoft.Storage/storageAccounts/{accountName}",
    "storage:FileShare": "RG/Microsoft.Storage/storageAccounts/{accountName}/fileServices/default/shares/{shareName}",
    "storage:BlobContainer": (
        "RG/Microsoft.Storage/storageAccounts/{accountName}/blobServices/default/containers/{containerName}"
    ),
    "operationalinsights:Workspace": "RG/Microsoft.OperationalInsights/workspaces/{workspaceName}",
    "applicationinsights:Workbook": "RG/Microsoft.Insights/workbooks/{resourceName}",
    "applicationinsights:Component": "RG/Microsoft.Insights/components/{resourceName}",
    "monitor:DiagnosticSetting": "/{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    "monitor:ActionGroup": "RG/Microsoft.Insights/actionGroups/{actionGroupName}",
    "monitor:MetricAlert": "RG/Microsoft.Insights/metricAlerts/{ruleName}",
    "monitor:ScheduledQueryRule": "RG/Microsoft.Insights/scheduledQueryRules/{ruleName}",
    "monitor:ActivityLogAlert": "RG/Microsoft.Insights/activityLogAlerts/{activityLogAlertName}",
    "monitor:DataCollectionRule": "RG/Microsoft.Insights/dataCollectionRules/{dataCollectionRuleName}",
    "consumption:Budget": "/{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "apimanagement:ApiManagementService": _APIM,
    "apimanagement:Api": _API,
    "apimanagement:ApiOperation": f"{_API}/operations/{{operationId}}",
    "apimanagement:ApiPolicy": f"{_API}/policies/{{policyId}}",
    "apimanagement:ApiOperationPolicy": f"{_API}/operations/{{operationId}}/policies/{{policyId}}",
    "apimanagement:ApiDiagnostic": f"{_API}/diagnostics/{{diagnosticId}}",
    "apimanagement:ApiSchema": f"{_API}/schemas/{{schemaId}}",
    "apimanagement:ApiVersionSet": f"{_APIM}/apiVersionSets/{{versionSetId}}",
    "apimanagement:Diagnostic": f"{_APIM}/diagnostics/{{diagnosticId}}",
    "apimanagement:Logger": f"{_APIM}/loggers/{{loggerId}}",
    "apimanagement:Backend": f"{_APIM}/backends/{{backendId}}",
    "apimanagement:NamedValue": f"{_APIM}/namedValues/{{namedValueId}}",
    "apimanagement:Product": _PRODUCT,
    "apimanagement:ProductApi": f"{_PRODUCT}/apis/{{apiId}}",
    "apimanagement:ProductPolicy": f"{_PRODUCT}/policies/{{policyId}}",
    "apimanagement:ProductGroup": f"{_PRODUCT}/groups/{{groupId}}",
    "apimanagement:Subscription": f"{_APIM}/subscriptions/{{sid}}",
    "apimanagement:PolicyFragment": f"{_APIM}/policyFragments/{{id}}",
    "apimanagement:Policy": f"{_APIM}/policies/{{policyId}}",
    "apimanagement:Group": f"{_APIM}/groups/{{groupId}}",
    "apimanagement:User": f"{_APIM}/users/{{userId}}",
    "apimanagement:Certificate": f"{_APIM}/certificates/{{certificateId}}",
    "apimanagement:Cache": f"{_APIM}/caches/{{cacheId}}",
}

# Modules whose resource provider namespace is not "Microsoft." + the module with its usual capitals.
_NAMESPACES: Final = {
    "privatedns": "Microsoft.Network",
    "monitor": "Microsoft.Insights",
    "applicationinsights": "Microsoft.Insights",
    "apimanagement": "Microsoft.ApiManagement",
    "operationalinsights": "Microsoft.OperationalInsights",
    "managedidentity": "Microsoft.ManagedIdentity",
    "keyvault": "Microsoft.KeyVault",
    "devtestlab": "Microsoft.DevTestLab",
}
_PARAM: Final = re.compile(r"\{(\w+)\}")
ARM_ID: Final = re.compile(r"^/subscriptions/[^/]+/(?:resourceGroups/[^/]+|providers/).*", re.IGNORECASE)


@dataclass(frozen=True)
class ArmPath:
    """The path of one resource type."""

    template: str

    @property
    def params(self) -> tuple[str, ...]:
        """Path parameters the user supplies; a change of any of them is a new resource."""
        return tuple(name for name in _PARAM.findall(self.template) if name != "subscriptionId")

    @property
    def name_param(self) -> str:
        """The parameter that names the resource itself (the last one)."""
        return self.params[-1]

    @property
    def is_child(self) -> bool:
        """True when the resource lives inside another one (azure-native copies such names instead of randomising)."""
        last = self.template.lower().split("microsoft.")
        return len(last) > 1 and last[-1].count("{") > 1

    @property
    def arm_type(self) -> str:
        """`Microsoft.Compute/disks`."""
        if "/providers/" not in self.template:
            return "Microsoft.Resources/resourceGroups"
        namespace, *rest = self.template.rsplit("/providers/", 1)[1].split("/")
        return "/".join([namespace, *[segment for segment in rest if not segment.startswith("{")]])

    def build(self, values: Mapping[str, Any], subscription: str = SUBSCRIPTION) -> str:
        """The id for given inputs.

        Raises:
            PlainError: a path parameter is missing or not text.
        """
        text = self.template.replace("{subscriptionId}", subscription)
        for name in self.params:
            value = values.get(name)
            if not isinstance(value, str):
                raise PlainError(f"expected string value for path parameter '{name}', got {type(value).__name__}")
            text = text.replace("{" + name + "}", value.strip("/"))
        return text

    def parse(self, resource_id: str) -> dict[str, str]:
        """Path parameters out of an id.

        Raises:
            PlainError: the id does not have this type's shape.
        """
        pattern = re.escape(self.template).replace(r"\{", "{").replace(r"\}", "}")
        greedy = {"scope", "resourceUri"}
        pattern = _PARAM.sub(lambda m: f"(?P<{m.group(1)}>{'.+' if m.group(1) in greedy else '[^/]+'})", pattern)
        found = re.fullmatch(pattern, resource_id, re.IGNORECASE)
        if not found:
            raise PlainError(f"unable to parse resource ID '{resource_id}': it does not match '{self.template}'")
        return {name: value for name, value in found.groupdict().items() if name != "subscriptionId"}


def path_of(schema: ResourceSchema) -> ArmPath:
    """The path of a resource type: listed, else derived from the SDK's getter arguments."""
    template = TEMPLATES.get(schema.key) or _derive(schema)
    return ArmPath(template.replace("RG/", f"{_GROUP}/providers/", 1) if template.startswith("RG/") else template)


def _derive(schema: ResourceSchema) -> str:
    """A plausible path for a type without a template: `…/providers/Microsoft.X/<types>/<parents>/<name>`."""
    required = [name for name, prop in schema.inputs.items() if prop.required]
    params = schema.path_params or tuple(name for name in required if name.endswith("Name") or name == "scope")
    inner = [name for name in params if name not in {"resourceGroupName", "scope", "resourceUri"}]
    own = [name for name in inner if name not in required] or inner[-1:]
    namespace = _NAMESPACES.get(schema.module, f"Microsoft.{schema.module.capitalize()}")
    kind = f"{schema.name[0].lower()}{schema.name[1:]}s"
    if schema.module == "apimanagement" and "serviceName" in inner:
        namespace, inner = f"{namespace}/service/{{serviceName}}", [name for name in inner if name != "serviceName"]
    parents = "".join(f"{_collection(name)}/{{{name}}}/" for name in inner if name not in own)
    scope = next((f"/{{{name}}}/providers" for name in ("scope", "resourceUri") if name in params), None)
    root = scope or ("RG" if "resourceGroupName" in params else "/subscriptions/{subscriptionId}/providers")
    return f"{root}/{namespace}/{parents}{kind}/" + "/".join(f"{{{name}}}" for name in own)


def _collection(param: str) -> str:
    """`serverName` → `servers`."""
    return f"{param.removesuffix('Name').removesuffix('Id')}s"


def parent_of(resource_id: str) -> str | None:
    """The id of the resource this one lives in, or `None` for a top-level one."""
    _, mark, tail = resource_id.rpartition("/providers/")
    segments = tail.split("/")
    if not mark or len(segments) <= 3:
        return None
    cut = 4 if segments[-4:-2] in (["fileServices", "default"], ["blobServices", "default"]) else 2
    return resource_id.rsplit("/", cut)[0]


def group_of(resource_id: str) -> str | None:
    """The id of the resource group in an id."""
    found = re.match(r"(/subscriptions/[^/]+/resourceGroups/[^/]+)", resource_id, re.IGNORECASE)
    return found.group(1) if found else None
