"""Small worlds to test in: resource group, network, node, disk, gateway, vault."""

import base64
from typing import Any

from simulator.plugin.values import Secret
from tests.simulator.azure.engine import Azure, Made

GROUP = "rg-test"
SIZE = "Standard_NC40ads_H100_v5"


def group(azure: Azure) -> Made:
    return azure.create("resources:ResourceGroup", "rg", {"resourceGroupName": GROUP})


def in_group(**inputs: Any) -> dict[str, Any]:
    return {"resourceGroupName": GROUP, **inputs}


def subnet(name: str, prefix: str, **body: Any) -> dict[str, Any]:
    return {"name": name, "addressPrefix": prefix, **body}


def vnet_inputs(*subnets: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = list(subnets) or [subnet("nodes", "10.0.0.0/24")]
    return in_group(
        virtualNetworkName="vnet", addressSpace={"addressPrefixes": ["10.0.0.0/16"]}, subnets=listed, **more
    )


def vnet(azure: Azure, *subnets: dict[str, Any]) -> Made:
    return azure.create("network:VirtualNetwork", "vnet", vnet_inputs(*subnets))


def nsg(azure: Azure, *rules: dict[str, Any], name: str = "nsg") -> Made:
    body = in_group(networkSecurityGroupName=name, securityRules=list(rules))
    return azure.create("network:NetworkSecurityGroup", name, body)


def rule(name: str, priority: int, **body: Any) -> dict[str, Any]:
    return {
        "name": name,
        "priority": priority,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefix": "*",
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "*",
        **body,
    }


def nic_inputs(subnet_id: str, name: str = "nic", address: str | None = None, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = {"name": "primary", "subnet": {"id": subnet_id}}
    if address:
        config |= {"privateIPAllocationMethod": "Static", "privateIPAddress": address}
    return in_group(networkInterfaceName=name, ipConfigurations=[config], **more)


def nic(azure: Azure, network: Made, name: str = "nic", address: str | None = None) -> Made:
    return azure.create("network:NetworkInterface", name, nic_inputs(f"{network.id}/subnets/nodes", name, address))


def public_ip(azure: Azure, name: str = "pip") -> Made:
    body = in_group(publicIpAddressName=name, publicIPAllocationMethod="Static", sku={"name": "Standard"})
    return azure.create("network:PublicIPAddress", name, body)


def disk_inputs(name: str = "models", **more: Any) -> dict[str, Any]:
    body = {"diskName": name, "diskSizeGB": 1024, "maxShares": 2, "sku": {"name": "Premium_LRS"}}
    return in_group(**{**body, "creationData": {"createOption": "Empty"}, **more})


def disk(azure: Azure, name: str = "models", **more: Any) -> Made:
    return azure.create("compute:Disk", name, disk_inputs(name, **more))


def data_disk(made: Made, lun: int = 0, **more: Any) -> dict[str, Any]:
    return {"lun": lun, "createOption": "Attach", "caching": "None", "managedDisk": {"id": made.id}, **more}


def vm_inputs(nic_id: str, name: str = "node-1", disks: tuple[dict[str, Any], ...] = (), **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "vmName": name,
        "hardwareProfile": {"vmSize": SIZE},
        "networkProfile": {"networkInterfaces": [{"id": nic_id, "primary": True}]},
        "osProfile": {
            "computerName": name,
            "adminUsername": "huddle",
            "customData": base64.b64encode(b"#cloud-config\n").decode(),
            "linuxConfiguration": {
                "disablePasswordAuthentication": True,
                "ssh": {"publicKeys": [{"path": "/home/huddle/.ssh/authorized_keys", "keyData": "ssh-ed25519 AAAA"}]},
            },
        },
        "storageProfile": {
            "imageReference": {
                "publisher": "microsoft-dsvm",
                "offer": "ubuntu-hpc",
                "sku": "2204",
                "version": "22.04.2026072901",
            },
            "osDisk": {
                "name": f"{name}-os",
                "createOption": "FromImage",
                "diskSizeGB": 256,
                "deleteOption": "Delete",
                "caching": "ReadWrite",
                "managedDisk": {"storageAccountType": "Premium_LRS"},
            },
            "dataDisks": list(disks),
        },
        **more,
    }
    return in_group(**body)


def vm(azure: Azure, nic_: Made, name: str = "node-1", disks: tuple[dict[str, Any], ...] = (), **more: Any) -> Made:
    return azure.create("compute:VirtualMachine", name, vm_inputs(nic_.id, name, disks, **more))


def node(azure: Azure) -> Made:
    """Group, network, NIC and VM."""
    group(azure)
    return vm(azure, nic(azure, vnet(azure)))


def run_command_inputs(vm_name: str = "node-1", **more: Any) -> dict[str, Any]:
    body = {
        "vmName": vm_name,
        "runCommandName": "apply",
        "source": {"script": "echo apply"},
        "treatFailureAsDeploymentFailure": True,
        **more,
    }
    return in_group(**body)


def gateway_inputs(tier: str = "StandardV2", capacity: int = 1, **more: Any) -> dict[str, Any]:
    body = {
        "serviceName": "apim-test",
        "publisherEmail": "ops@example.com",
        "publisherName": "Ops",
        "sku": {"name": tier, "capacity": capacity},
        **more,
    }
    return in_group(**body)


def gateway(azure: Azure, **more: Any) -> Made:
    return azure.create("apimanagement:ApiManagementService", "gateway", gateway_inputs(**more))


def in_gateway(**inputs: Any) -> dict[str, Any]:
    return in_group(serviceName="apim-test", **inputs)


def gateway_network(
    azure: Azure, prefix: str, delegation: str | None, *rules: dict[str, Any], guarded: bool = True
) -> Made:
    """A network with a gateway subnet."""
    body: dict[str, Any] = {}
    if guarded:
        body["networkSecurityGroup"] = {"id": nsg(azure, *rules, name="gateway-nsg").id}
    if delegation:
        body["delegations"] = [{"name": "apim", "serviceName": delegation}]
    return vnet(azure, subnet("gateway", prefix, **body))


def attached(network: Made, kind: str = "External") -> dict[str, Any]:
    return {
        "virtualNetworkType": kind,
        "virtualNetworkConfiguration": {"subnetResourceId": f"{network.id}/subnets/gateway"},
    }


def vault_inputs(name: str = "kv-test", **properties: Any) -> dict[str, Any]:
    body = {
        "tenantId": "11111111-1111-1111-1111-111111111111",
        "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": True,
        **properties,
    }
    return in_group(vaultName=name, properties=body)


def vault(azure: Azure, **properties: Any) -> Made:
    return azure.create("keyvault:Vault", "vault", vault_inputs(**properties))


def secret(azure: Azure, name: str = "backend-key", value: str = "CANARY-secret-value") -> Made:
    body = in_group(vaultName="kv-test", secretName=name, properties={"value": Secret(value)})
    return azure.create("keyvault:Secret", name, body)


def merged(inputs: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A deep copy with one nested value changed."""
    head, _, rest = path.partition(".")
    return {**inputs, head: merged(inputs[head], rest, value) if rest else value}
