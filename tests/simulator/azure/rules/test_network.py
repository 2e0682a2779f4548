"""Networks: subnets, NSGs, NICs, addresses, Bastion, private endpoints, DNS."""

import pytest

from simulator.plugin.values import dig
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError

# --- virtual networks and subnets


@pytest.mark.parametrize(
    ("subnets", "words"),
    [
        ([b.subnet("a", "10.1.0.0/24")], "NetcfgSubnetRangeOutsideVnet.*'a'"),
        ([b.subnet("a", "10.0.0.0/24"), b.subnet("b", "10.0.0.128/25")], "NetcfgSubnetRangesOverlap.*'b'.*'a'"),
        ([b.subnet("a", "10.0.0.1/24")], "InvalidCIDRNotation.*10.0.0.1/24"),
    ],
)
def test_address_plan(ground, subnets, words):
    with pytest.raises(RefusedError, match=words):
        b.vnet(ground, *subnets)


def test_inline_subnets_get_ids_and_defaults(ground):
    vnet = b.vnet(ground)
    listed = vnet.outputs["subnets"][0]
    assert listed["id"] == f"{vnet.id}/subnets/nodes"
    assert listed["privateEndpointNetworkPolicies"] == "Disabled"


def test_a_subnet_in_use_cannot_go(ground):
    vnet = b.vnet(ground, b.subnet("nodes", "10.0.0.0/24"), b.subnet("free", "10.0.1.0/24"))
    b.nic(ground, vnet)
    without = b.vnet_inputs(b.subnet("free", "10.0.1.0/24"))
    words = r"InUseSubnetCannotBeDeleted.*Subnet nodes is in use by .*networkInterfaces/nic/ipConfigurations/primary"
    with pytest.raises(RefusedError, match=words):
        ground.update(vnet, without)
    with pytest.raises(RefusedError, match=words):
        ground.delete(vnet)
    moved = b.vnet_inputs(b.subnet("nodes", "10.0.9.0/24"), b.subnet("free", "10.0.1.0/24"))
    with pytest.raises(RefusedError, match=r"InUsePrefixCannotBeDeleted.*10.0.0.0/24"):
        ground.update(vnet, moved)


def test_a_free_subnet_can_go(ground):
    vnet = b.vnet(ground, b.subnet("nodes", "10.0.0.0/24"), b.subnet("free", "10.0.1.0/24"))
    b.nic(ground, vnet)
    after = ground.update(vnet, b.vnet_inputs(b.subnet("nodes", "10.0.0.0/24")))
    assert [subnet["name"] for subnet in after.outputs["subnets"]] == ["nodes"]


def standalone(name, prefix, **more):
    return b.in_group(virtualNetworkName="vnet", subnetName=name, addressPrefix=prefix, **more)


def test_standalone_subnets_and_the_put_that_removes_them(ground):
    bare = {key: value for key, value in b.vnet_inputs().items() if key != "subnets"}
    vnet = ground.create("network:VirtualNetwork", "vnet", bare)
    ground.create("network:Subnet", "nodes", standalone("nodes", "10.0.0.0/24"))
    kept = ground.update(vnet, {**bare, "tags": {"a": "b"}})
    assert [subnet["name"] for subnet in kept.outputs["subnets"]] == ["nodes"]
    ground.update(kept, b.vnet_inputs(b.subnet("other", "10.0.5.0/24")))
    assert ground.state.of_type("network:Subnet") == []


def test_a_standalone_subnet_must_fit_and_be_free(ground):
    vnet = b.vnet(ground)
    with pytest.raises(RefusedError, match=r"NetcfgSubnetRangesOverlap"):
        ground.create("network:Subnet", "more", standalone("more", "10.0.0.0/25"))
    subnet = ground.create("network:Subnet", "more", standalone("more", "10.0.2.0/24"))
    ground.create("network:NetworkInterface", "nic", b.nic_inputs(f"{vnet.id}/subnets/more"))
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted"):
        ground.delete(subnet)


def test_one_write_at_a_time_per_network(ground):
    b.vnet(ground)
    one = ("network:Subnet", "one", standalone("one", "10.0.1.0/24"))
    with (
        ground.under_way("one", ground.create, *one),
        pytest.raises(RefusedError, match=r'Status=409 Code="AnotherOperationInProgress"'),
    ):
        ground.create("network:Subnet", "two", standalone("two", "10.0.2.0/24"))
    assert ground.create("network:Subnet", "two", standalone("two", "10.0.2.0/24")).id


# --- security groups


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ([b.rule("a", 100), b.rule("b", 100)], "SecurityRuleConflict.*same Priority and Direction. Priority: 100"),
        ([b.rule("a", 99)], "SecurityRuleInvalidPriority.*Value provided: 99 Allowed range 100-4096"),
        ([b.rule("a", 100, destinationPortRange="0-99999")], "SecurityRuleInvalidPortRange.*0-99999"),
        ([b.rule("a", 100, destinationPortRange=None)], "SecurityRuleParameterPortRangeCannotBeEmpty"),
        ([b.rule("a", 100, sourceAddressPrefix=None)], "SecurityRuleInvalidAddressPrefix"),
    ],
)
def test_rules(ground, rules, words):
    with pytest.raises(RefusedError, match=words):
        b.nsg(ground, *rules)


def test_same_priority_in_two_directions_is_fine(ground):
    group = b.nsg(ground, b.rule("a", 100), b.rule("b", 100, direction="Outbound"))
    assert group.outputs["securityRules"][0]["id"].endswith("/securityRules/a")


def test_a_security_group_in_use_stays(ground):
    group = b.nsg(ground)
    vnet = b.vnet(ground, b.subnet("nodes", "10.0.0.0/24", networkSecurityGroup={"id": group.id}))
    with pytest.raises(
        RefusedError, match=r"InUseNetworkSecurityGroupCannotBeDeleted.*in use by .*virtualNetworks/vnet"
    ):
        ground.delete(group)
    ground.update(vnet, b.vnet_inputs())
    ground.delete(group)


# --- NICs


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("10.1.0.4", "PrivateIPAddressNotInSubnet.*10.1.0.4 does not belong to the range of subnet prefix 10.0.0.0/24"),
        ("10.0.0.3", "PrivateIPAddressInReservedRange.*10.0.0.3"),
        ("10.0.0.255", "PrivateIPAddressInReservedRange"),
        ("10.0.0.4", "PrivateIPAddressIsAllocated.*already allocated to resource .*networkInterfaces/first"),
    ],
)
def test_static_addresses(ground, address, words):
    vnet = b.vnet(ground)
    b.nic(ground, vnet, "first", "10.0.0.4")
    with pytest.raises(RefusedError, match=words):
        b.nic(ground, vnet, "second", address)


def test_dynamic_addresses_are_the_next_free_ones_and_stay(ground):
    vnet = b.vnet(ground)
    b.nic(ground, vnet, "fixed", "10.0.0.4")
    first = b.nic(ground, vnet, "first")
    assert dig(first.outputs, "ipConfigurations.0.privateIPAddress") == "10.0.0.5"
    again = ground.change(first, tags={"a": "b"})
    assert dig(again.outputs, "ipConfigurations.0.privateIPAddress") == "10.0.0.5"
    assert dig(again.outputs, "ipConfigurations.0.id") == f"{first.id}/ipConfigurations/primary"


def test_a_full_subnet(ground):
    vnet = b.vnet(ground, b.subnet("nodes", "10.0.0.0/29"))
    for number in range(3):
        b.nic(ground, vnet, f"nic-{number}")
    with pytest.raises(RefusedError, match=r"SubnetIsFull.*10.0.0.0/29"):
        b.nic(ground, vnet, "one-too-many")


def test_a_nic_of_a_vm_stays(azure):
    vm = b.node(azure)
    nic = azure.import_("network:NetworkInterface", "nic", vm.inputs["networkProfile"]["networkInterfaces"][0]["id"])
    with pytest.raises(RefusedError, match=r"NicInUse.*used by existing resource .*virtualMachines/node-1"):
        azure.delete(nic)


def test_a_nic_lives_in_its_networks_region(ground):
    vnet = b.vnet(ground)
    with pytest.raises(RefusedError, match=r"InvalidResourceReference.*same region"):
        ground.create("network:NetworkInterface", "nic", b.nic_inputs(f"{vnet.id}/subnets/nodes", location="westus"))


# --- public addresses and NAT


def test_public_addresses_are_documentation_addresses(ground):
    first, second = b.public_ip(ground), b.public_ip(ground, "other")
    assert first.outputs["ipAddress"].startswith("203.0.113.")
    assert first.outputs["ipAddress"] != second.outputs["ipAddress"]


def test_standard_addresses_are_static(ground):
    body = b.in_group(publicIpAddressName="pip", publicIPAllocationMethod="Dynamic", sku={"name": "Standard"})
    with pytest.raises(RefusedError, match=r"must have AllocationMethod set to Static"):
        ground.create("network:PublicIPAddress", "pip", body)


def nat(azure, *addresses, sku="Standard", **more):
    body = b.in_group(natGatewayName="nat", sku={"name": sku}, publicIpAddresses=[{"id": ip.id} for ip in addresses])
    return azure.create("network:NatGateway", "nat", {**body, **more})


def test_an_address_in_use_stays_and_so_does_its_gateway(ground):
    address = b.public_ip(ground)
    gateway = nat(ground, address)
    b.vnet(ground, b.subnet("nodes", "10.0.0.0/24", natGateway={"id": gateway.id}))
    with pytest.raises(
        RefusedError, match=r"PublicIPAddressCannotBeDeleted.*still allocated to resource .*natGateways/nat"
    ):
        ground.delete(address)
    with pytest.raises(RefusedError, match=r"InUseNatGatewayCannotBeDeleted"):
        ground.delete(gateway)


def test_nat_needs_standard(ground):
    basic = ground.create("network:PublicIPAddress", "basic", b.in_group(publicIpAddressName="basic"))
    with pytest.raises(RefusedError, match=r"can only reference public IP addresses of sku Standard"):
        nat(ground, basic)


def test_prefixes(ground):
    body = b.in_group(publicIpPrefixName="prefix", prefixLength=31, sku={"name": "Standard"})
    prefix = ground.create("network:PublicIPPrefix", "prefix", body)
    assert prefix.outputs["ipPrefix"].endswith("/31")
    inside = b.in_group(
        publicIpAddressName="pip",
        publicIPAllocationMethod="Static",
        sku={"name": "Standard"},
        publicIPPrefix={"id": prefix.id},
    )
    address = ground.create("network:PublicIPAddress", "pip", inside)
    assert address.outputs["ipAddress"] == prefix.outputs["ipPrefix"].split("/")[0]
    with pytest.raises(RefusedError, match=r"InUsePublicIpPrefixCannotBeDeleted"):
        ground.delete(prefix)
    with pytest.raises(RefusedError, match=r"PublicIpPrefixLengthCannotBeChanged"):
        ground.change(prefix, prefixLength=30)
    with pytest.raises(RefusedError, match=r"PublicIpPrefixLengthInvalid"):
        ground.create("network:PublicIPPrefix", "big", {**body, "publicIpPrefixName": "big", "prefixLength": 20})


# --- Bastion


def bastion_inputs(vnet, address, subnet="AzureBastionSubnet", sku="Standard", **more):
    config = {"name": "c", "subnet": {"id": f"{vnet.id}/subnets/{subnet}"}, "publicIPAddress": {"id": address.id}}
    return b.in_group(bastionHostName="bastion", sku={"name": sku}, ipConfigurations=[config], **more)


def test_bastion(ground):
    vnet = b.vnet(ground, b.subnet("AzureBastionSubnet", "10.0.1.0/26"), b.subnet("nodes", "10.0.0.0/24"))
    address = b.public_ip(ground)
    with pytest.raises(RefusedError, match=r"subnet named AzureBastionSubnet, not .*subnets/nodes"):
        ground.create("network:BastionHost", "bastion", bastion_inputs(vnet, address, "nodes"))
    with pytest.raises(RefusedError, match=r"enableTunneling is not supported for Sku Basic"):
        ground.create(
            "network:BastionHost", "bastion", bastion_inputs(vnet, address, sku="Basic", enableTunneling=True)
        )
    host = ground.create("network:BastionHost", "bastion", bastion_inputs(vnet, address, enableTunneling=True))
    assert host.outputs["dnsName"].endswith(".bastion.azure.com")
    with pytest.raises(RefusedError, match=r"Sku cannot go from Standard down to Basic"):
        ground.change(host, sku={"name": "Basic"}, enableTunneling=False)
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted.*bastionHosts/bastion"):
        ground.delete(vnet)


def test_bastion_subnet_size_and_address(ground):
    vnet = b.vnet(ground, b.subnet("AzureBastionSubnet", "10.0.1.0/27"))
    with pytest.raises(RefusedError, match=r"prefix of /26 or larger, it has 10.0.1.0/27"):
        ground.create("network:BastionHost", "bastion", bastion_inputs(vnet, b.public_ip(ground)))
    vnet = ground.update(vnet, b.vnet_inputs(b.subnet("AzureBastionSubnet", "10.0.1.0/26")))
    basic = ground.create("network:PublicIPAddress", "basic", b.in_group(publicIpAddressName="basic"))
    with pytest.raises(RefusedError, match=r"static public IP address of sku Standard"):
        ground.create("network:BastionHost", "bastion", bastion_inputs(vnet, basic))


# --- private endpoints and DNS


def endpoint_inputs(vnet, target, group="vault"):
    connection = {"name": "c", "privateLinkServiceId": target.id, "groupIds": [group]}
    return b.in_group(
        privateEndpointName="pe-vault",
        subnet={"id": f"{vnet.id}/subnets/nodes"},
        privateLinkServiceConnections=[connection],
    )


def zone(azure, name="privatelink.vaultcore.azure.net", **more):
    return azure.create("privatedns:PrivateZone", "zone", b.in_group(privateZoneName=name, location="Global", **more))


def test_private_endpoint_brings_its_nic_and_record(ground):
    vnet, vault = b.vnet(ground), b.vault(ground)
    endpoint = ground.create("network:PrivateEndpoint", "pe", endpoint_inputs(vnet, vault))
    connection = endpoint.outputs["privateLinkServiceConnections"][0]
    assert connection["privateLinkServiceConnectionState"]["status"] == "Approved"
    assert endpoint.outputs["customDnsConfigs"] == [{"fqdn": "kv-test.vault.azure.net", "ipAddresses": ["10.0.0.4"]}]
    assert [nic.managed_by for nic in ground.state.of_type("network:NetworkInterface")] == [endpoint.id]
    dns = zone(ground)
    group = b.in_group(
        privateEndpointName="pe-vault",
        privateDnsZoneGroupName="default",
        privateDnsZoneConfigs=[{"name": "vault", "privateDnsZoneId": dns.id}],
    )
    made = ground.create("network:PrivateDnsZoneGroup", "dns", group)
    record = ground.state.of_type("privatedns:PrivateRecordSet")[0]
    assert record.name == "kv-test" and record.properties["aRecords"] == [{"ipv4Address": "10.0.0.4"}]
    ground.delete(made)
    assert ground.state.of_type("privatedns:PrivateRecordSet") == []
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted"):
        ground.delete(vnet)
    ground.delete(endpoint)
    assert ground.state.of_type("network:NetworkInterface") == []
    ground.delete(vnet)


def test_a_wrong_group_id(ground):
    with pytest.raises(RefusedError, match=r"group id 'file' is not one of \['vault'\]"):
        ground.create("network:PrivateEndpoint", "pe", endpoint_inputs(b.vnet(ground), b.vault(ground), "file"))


def test_no_private_endpoint_for_consumption(ground):
    service = b.gateway(ground, tier="Consumption", capacity=0)
    with pytest.raises(RefusedError, match=r"not supported for Sku Type 'Consumption'"):
        ground.create("network:PrivateEndpoint", "pe", endpoint_inputs(b.vnet(ground), service, "Gateway"))


def test_private_zones_are_global(ground):
    body = b.in_group(privateZoneName="privatelink.azure-api.net")
    with pytest.raises(RefusedError, match=r"LocationNotAvailableForResourceType.*'eastus'.*privateDnsZones.*'global'"):
        ground.create("privatedns:PrivateZone", "zone", body)


def test_links(ground):
    vnet, dns = b.vnet(ground), zone(ground)
    body = b.in_group(
        privateZoneName="privatelink.vaultcore.azure.net",
        virtualNetworkLinkName="link",
        location="global",
        virtualNetwork={"id": vnet.id},
    )
    link = ground.create("privatedns:VirtualNetworkLink", "link", body)
    assert link.outputs["virtualNetworkLinkState"] == "Completed"
    with pytest.raises(RefusedError, match=r"cannot be linked to multiple zones"):
        ground.create("privatedns:VirtualNetworkLink", "two", {**body, "virtualNetworkLinkName": "two"})
    with pytest.raises(RefusedError, match=r"CannotDeleteResource.*nested resources exist.*virtualNetworkLinks/link"):
        ground.delete(dns)
    ground.delete(link)
    ground.delete(dns)


def test_records(ground):
    zone(ground, "huddle.internal")
    body = b.in_group(
        privateZoneName="huddle.internal",
        recordType="A",
        relativeRecordSetName="node-1",
        ttl=60,
        aRecords=[{"ipv4Address": "10.0.0.4"}],
    )
    record = ground.create("privatedns:PrivateRecordSet", "record", body)
    assert record.outputs["fqdn"] == "node-1.huddle.internal."
    assert record.id.endswith("/privateDnsZones/huddle.internal/A/node-1")
