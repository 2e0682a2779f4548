"""API Management: tiers and networks, entities and their locks, soft delete, policies."""

import json
import xml.etree.ElementTree as ET
from xml.sax.saxutils import quoteattr

import hypothesis
import pytest
from hypothesis import strategies as st

from simulator import portal
from simulator.rules import policy_xml
from simulator.values import Secret
from tests.simulator import builders as b
from tests.simulator.engine import PartialError, RefusedError

INTEGRATION = "Microsoft.Web/serverFarms"
INJECTION = "Microsoft.Web/hostingEnvironments"
CLASSIC_RULES = (
    b.rule("management", 100, sourceAddressPrefix="ApiManagement", destinationPortRange="3443"),
    b.rule("probe", 110, sourceAddressPrefix="AzureLoadBalancer", destinationPortRange="6390"),
)


@pytest.fixture
def ground(azure):
    b.group(azure)
    return azure


# --- tiers and networks


@pytest.mark.parametrize(
    ("tier", "kind", "prefix", "delegation"),
    [
        ("StandardV2", "External", "10.0.2.0/27", INTEGRATION),
        ("PremiumV2", "External", "10.0.2.0/27", INTEGRATION),
        ("PremiumV2", "Internal", "10.0.2.0/27", INJECTION),
        ("Developer", "Internal", "10.0.2.0/29", None),
        ("Premium", "External", "10.0.2.0/29", None),
    ],
)
def test_networks_that_work(ground, tier, kind, prefix, delegation):
    network = b.gateway_network(ground, prefix, delegation, *CLASSIC_RULES)
    made = b.gateway(ground, tier=tier, **b.attached(network, kind))
    assert made.outputs["gatewayUrl"] == "https://apim-test.azure-api.net"
    assert ("privateIPAddresses" in made.outputs) == (kind == "Internal")


@pytest.mark.parametrize(
    ("tier", "kind", "prefix", "delegation", "words"),
    [
        (
            "StandardV2",
            "Internal",
            "10.0.2.0/24",
            INTEGRATION,
            "Setting up 'Internal' Internal Virtual Network Type is not supported for Sku Type 'StandardV2'.",
        ),
        ("BasicV2", "External", "10.0.2.0/24", INTEGRATION, "not supported for Sku Type 'BasicV2'"),
        ("StandardV2", "External", "10.0.2.0/24", None, r"SubnetMissingRequiredDelegation.*Microsoft.Web/serverFarms"),
        ("StandardV2", "External", "10.0.2.0/24", INJECTION, r"SubnetMissingRequiredDelegation"),
        ("PremiumV2", "Internal", "10.0.2.0/24", INTEGRATION, r"Microsoft.Web/hostingEnvironments"),
        ("Developer", "Internal", "10.0.2.0/24", INTEGRATION, r"SubnetHasDelegations"),
        ("StandardV2", "External", "10.0.2.0/28", INTEGRATION, r"SubnetTooSmall.*/27 is the smallest"),
        ("Premium", "Internal", "10.0.2.0/30", None, r"SubnetTooSmall.*/29"),
    ],
)
def test_networks_that_do_not_work(ground, tier, kind, prefix, delegation, words):
    network = b.gateway_network(ground, prefix, delegation)
    with pytest.raises(RefusedError, match=words):
        b.gateway(ground, tier=tier, **b.attached(network, kind))


def test_the_subnet_needs_a_security_group(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION, guarded=False)
    with pytest.raises(RefusedError, match=r"must have a network security group"):
        b.gateway(ground, **b.attached(network))


def test_the_subnet_is_dedicated(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION)
    ground.create("network:NetworkInterface", "nic", b.nic_inputs(f"{network.id}/subnets/gateway"))
    with pytest.raises(RefusedError, match=r"must be dedicated.*networkInterfaces/nic"):
        b.gateway(ground, **b.attached(network))


def test_classic_injection_without_its_rules_fails_late(ground):
    network = b.gateway_network(ground, "10.0.2.0/28", None)
    with pytest.raises(
        PartialError, match=r"Unable to activate API service.*inbound port 3443 from ApiManagement is blocked"
    ):
        b.gateway(ground, tier="Developer", **b.attached(network, "Internal"))
    assert ground.state.of_type("apimanagement:ApiManagementService")[0].properties["provisioningState"] == "Failed"


def test_a_deny_above_the_needed_outbound_flow_fails_too(ground):
    deny = b.rule("deny", 200, direction="Outbound", access="Deny", destinationAddressPrefix="Internet")
    network = b.gateway_network(ground, "10.0.2.0/28", None, *CLASSIC_RULES, deny)
    with pytest.raises(PartialError, match=r"outbound port 443 to Storage is blocked"):
        b.gateway(ground, tier="Developer", **b.attached(network, "Internal"))


def test_public_access_cannot_be_disabled_at_creation_nor_without_an_endpoint(ground):
    words = r"Blocking all public network access by setting property `publicNetworkAccess`.*not enabled during"
    with pytest.raises(RefusedError, match=words):
        b.gateway(ground, publicNetworkAccess="Disabled")
    made = b.gateway(ground)
    with pytest.raises(RefusedError, match=r"approved private endpoint"):
        ground.change(made, publicNetworkAccess="Disabled")
    network = b.vnet(ground)
    connection = {"name": "c", "privateLinkServiceId": made.id, "groupIds": ["Gateway"]}
    body = b.in_group(
        privateEndpointName="pe",
        subnet={"id": f"{network.id}/subnets/nodes"},
        privateLinkServiceConnections=[connection],
    )
    ground.create("network:PrivateEndpoint", "pe", body)
    assert ground.change(made, publicNetworkAccess="Disabled").outputs["publicNetworkAccess"] == "Disabled"


@pytest.mark.parametrize(
    ("tier", "capacity", "allowed"),
    [("Consumption", 1, "0"), ("Developer", 2, "1"), ("StandardV2", 11, "1 to 10"), ("StandardV2", 0, "1 to 10")],
)
def test_capacity(ground, tier, capacity, allowed):
    with pytest.raises(RefusedError, match=rf"sku.capacity of '{tier}' is {capacity}, allowed: {allowed}\."):
        b.gateway(ground, tier=tier, capacity=capacity)


def test_tiers_that_cannot_become_each_other(ground):
    made = b.gateway(ground, tier="Developer")
    with pytest.raises(RefusedError, match=r"Changing Sku Type from 'Developer' to 'StandardV2' is not supported"):
        ground.change(made, sku={"name": "StandardV2", "capacity": 1})
    with pytest.raises(RefusedError, match=r"Sku Type 'Deluxe' does not exist"):
        ground.change(made, sku={"name": "Deluxe", "capacity": 1})


def test_the_gateways_subnet_outlives_it(ground):
    network = b.gateway_network(ground, "10.0.2.0/27", INTEGRATION)
    made = b.gateway(ground, **b.attached(network))
    with pytest.raises(RefusedError, match=r"InUseSubnetCannotBeDeleted.*serviceAssociationLinks/AppServiceLink"):
        ground.delete(network)
    bare = b.vnet_inputs(b.subnet("gateway", "10.0.2.0/27"))
    with pytest.raises(RefusedError, match=r"SubnetMissingRequiredDelegation"):
        ground.update(network, bare)
    ground.delete(made)
    ground.delete(network)


# --- names that stay reserved


def test_soft_delete_reserves_the_name_until_purged(ground, monkeypatch, capsys):
    ground.delete(b.gateway(ground))
    with pytest.raises(RefusedError, match=r"ServiceAlreadyExistsInSoftDeletedState.*apim-test was soft-deleted"):
        b.gateway(ground)
    monkeypatch.setenv("AZURE_SIMULATOR_STATE", str(ground.cloud.store.path))
    assert portal.main(["purge", "nothing"]) == 2
    assert "'nothing' is not soft-deleted" in capsys.readouterr().err
    assert portal.main(["purge", "APIM-test"]) == 0
    assert "simulated: purged" in capsys.readouterr().out
    assert b.gateway(ground).id


def test_soft_delete_ends_after_48_hours(ground):
    ground.delete(b.gateway(ground))
    with ground.cloud.store.transaction() as state:
        item = state.deleted[0]
        assert item.purge_at - item.deleted == 48 * 3600
        item.purge_at = item.deleted
    assert b.gateway(ground).id


def test_restore(ground):
    with pytest.raises(RefusedError, match=r"no soft-deleted service apim-test"):
        b.gateway(ground, restore=True)
    ground.delete(b.gateway(ground))
    assert "restore" not in b.gateway(ground, restore=True).outputs
    assert ground.state.deleted == []


def test_the_name_is_global(ground):
    b.gateway(ground)
    ground.create("resources:ResourceGroup", "two", {"resourceGroupName": "rg-two"})
    body = {**b.gateway_inputs(serviceName="APIM-TEST"), "resourceGroupName": "rg-two"}
    with pytest.raises(RefusedError, match=r"ServiceAlreadyExists"):
        ground.create("apimanagement:ApiManagementService", "two", body)


def test_the_portal_shows_resources_and_a_timeline(ground, monkeypatch, capsys):
    monkeypatch.setenv("AZURE_SIMULATOR_STATE", str(ground.cloud.store.path))
    ground.delete(b.gateway(ground))
    assert portal.main(["show"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["simulated"] is True and shown["soft_deleted"][0]["name"] == "apim-test"
    assert portal.main(["timeline"]) == 0
    spans = json.loads(capsys.readouterr().out)
    assert [span["operation"] for span in spans] == ["create", "create", "delete"]
    assert all(0 <= span["start_s"] <= span["end_s"] for span in spans)


# --- entities


@pytest.fixture
def service(ground):
    b.gateway(ground)
    return ground


def product(azure, name="team", **more):
    return azure.create("apimanagement:Product", name, b.in_gateway(productId=name, displayName=name, **more))


def subscription_inputs(name, scope="/products/team", **more):
    return b.in_gateway(sid=name, displayName=name, scope=scope, **more)


def api_inputs(name="chat", path="openai", **more):
    return b.in_gateway(apiId=name, displayName=name, path=path, **more)


def backend(azure, name="node-1", **more):
    body = {"url": "http://10.0.0.4:8000", "protocol": "http", **more}
    return azure.create("apimanagement:Backend", name, b.in_gateway(backendId=name, **body))


def pool(azure, *members, name="pool"):
    services = [{"id": f"/backends/{member}", "priority": 1, "weight": 50} for member in members]
    body = b.in_gateway(backendId=name, type="Pool", pool={"services": services})
    return azure.create("apimanagement:Backend", name, body)


def named_value(azure, name="backend-key", **more):
    body = {"displayName": name, "value": "plain", **more}
    return azure.create("apimanagement:NamedValue", name, b.in_gateway(namedValueId=name, **body))


def policy_inputs(inbound, **more):
    text = f"<policies><inbound><base />{inbound}</inbound><backend><base /></backend></policies>"
    return b.in_gateway(policyId="policy", format="rawxml", value=text, **more)


def product_policy(azure, inbound):
    return azure.create("apimanagement:ProductPolicy", "policy", policy_inputs(inbound, productId="team"))


def test_defaults_that_surprise(service):
    assert product(service).outputs["state"] == "notPublished"
    made = service.create("apimanagement:Subscription", "s", subscription_inputs("s"))
    assert made.outputs["state"] == "submitted"
    assert made.outputs["scope"].endswith("/service/apim-test/products/team")


def test_keys_come_from_the_function_only(service):
    product(service)
    made = service.create(
        "apimanagement:Subscription", "s", subscription_inputs("s", primaryKey=Secret("CANARY-primary-key"))
    )
    assert "primaryKey" not in made.outputs
    keys = service.invoke("apimanagement:listSubscriptionSecrets", **b.in_gateway(sid="s"))
    assert keys["primaryKey"].startswith("simulated") and keys["primaryKey"] != keys["secondaryKey"]
    assert keys == service.invoke("apimanagement:listSubscriptionSecrets", **b.in_gateway(sid="s"))
    assert "CANARY" not in service.cloud.store.path.read_text()


def test_scopes_must_exist(service):
    with pytest.raises(RefusedError, match=r"Subscription scope '/products/team' not found"):
        service.create("apimanagement:Subscription", "s", subscription_inputs("s"))
    assert service.create("apimanagement:Subscription", "all", subscription_inputs("all", "/apis")).id


def test_parallel_subscriptions_get_412(service):
    product(service)
    one = ("apimanagement:Subscription", "one", subscription_inputs("one"))
    with (
        service.under_way("one", service.create, *one),
        pytest.raises(RefusedError, match=r'Status=412 Code="PreconditionFailed"'),
    ):
        service.create("apimanagement:Subscription", "two", subscription_inputs("two"))
    assert service.create("apimanagement:Subscription", "two", subscription_inputs("two")).id


def test_parallel_links_of_one_product_get_409(service):
    product(service)
    for name in ("a", "b"):
        service.create("apimanagement:Api", name, api_inputs(name, name))
    link = ("apimanagement:ProductApi", "a", b.in_gateway(productId="team", apiId="a"))
    with (
        service.under_way("a", service.create, *link),
        pytest.raises(RefusedError, match=r"PessimisticConcurrencyConflict.*Operation on the Product is in progress"),
    ):
        service.create("apimanagement:ProductApi", "b", b.in_gateway(productId="team", apiId="b"))


def test_a_service_in_transition_takes_no_writes(ground):
    made = b.gateway(ground)
    with (
        ground.under_way("apim-test", ground.update, made, {**made.inputs, "tags": {"a": "b"}}),
        pytest.raises(RefusedError, match=r"ServiceLocked.*transitioning"),
    ):
        product(ground)


def test_products(service):
    made = product(service, subscriptionsLimit=1)
    with pytest.raises(RefusedError, match=r"product with the name 'Team' already exists"):
        service.create("apimanagement:Product", "two", b.in_gateway(productId="two", displayName="Team"))
    with pytest.raises(RefusedError, match=r"approvalRequired needs subscriptionRequired"):
        product(service, "open", subscriptionRequired=False, approvalRequired=True)
    subscription = service.create("apimanagement:Subscription", "s", subscription_inputs("s"))
    with pytest.raises(RefusedError, match=r"Subscriptions limit of product '/products/team' is reached: 1"):
        service.create("apimanagement:Subscription", "t", subscription_inputs("t"))
    with pytest.raises(RefusedError, match=r"Product 'team' has subscriptions \(/subscriptions/s\)"):
        service.delete(made)
    service.delete(subscription)
    service.delete(made)


def test_links_need_both_ends(service):
    product(service)
    with pytest.raises(RefusedError, match=r"API not found: 'chat'"):
        service.create("apimanagement:ProductApi", "link", b.in_gateway(productId="team", apiId="chat"))
    api = service.create("apimanagement:Api", "chat", api_inputs())
    link = service.create("apimanagement:ProductApi", "link", b.in_gateway(productId="team", apiId="chat"))
    assert link.outputs["path"] == "openai"
    group = service.create("apimanagement:ProductGroup", "g", b.in_gateway(productId="team", groupId="developers"))
    assert group.outputs["builtIn"] is True
    with pytest.raises(RefusedError, match=r"Group not found: 'nobody'"):
        service.create("apimanagement:ProductGroup", "n", b.in_gateway(productId="team", groupId="nobody"))
    with pytest.raises(RefusedError, match=r"(?s)The API 'chat' is used by.*/products/team/apis/chat"):
        service.delete(api)


DOCUMENT = {
    "openapi": "3.0.1",
    "info": {"title": "Chat", "version": "1"},
    "paths": {
        "/v1/chat/completions": {"post": {"operationId": "chat", "responses": {}}},
        "/v1/models": {"get": {"responses": {}}},
    },
}


def test_a_definition_brings_operations(service):
    body = api_inputs(format="openapi+json", value=json.dumps(DOCUMENT))
    api = service.create("apimanagement:Api", "chat", body)
    assert "value" not in api.outputs and "format" not in api.outputs
    names = {operation.name for operation in service.state.of_type("apimanagement:ApiOperation")}
    assert names == {"chat", "get-v1-models"}
    operation = b.in_gateway(apiId="chat", operationId="chat", displayName="c", method="POST", urlTemplate="/x")
    with pytest.raises(RefusedError, match=r"cannot create already existing resource"):
        service.create("apimanagement:ApiOperation", "chat", operation)
    smaller = {**DOCUMENT, "paths": {"/v1/models": {"get": {"responses": {}}}}}
    service.update(api, {**body, "value": json.dumps(smaller)})
    assert {operation.name for operation in service.state.of_type("apimanagement:ApiOperation")} == {"get-v1-models"}


@pytest.mark.parametrize(("text", "words"), [("{", "not valid"), ("{}", "'openapi' is missing"), ("[]", "'openapi'")])
def test_a_definition_that_is_none(service, text, words):
    with pytest.raises(RefusedError, match=words):
        service.create("apimanagement:Api", "chat", api_inputs(format="openapi+json", value=text))


def test_api_paths_are_unique(service):
    api = service.create("apimanagement:Api", "chat", api_inputs())
    assert api.outputs["subscriptionKeyParameterNames"]["header"] == "Ocp-Apim-Subscription-Key"
    with pytest.raises(RefusedError, match=r"API path 'openai' is already used by '/apis/chat'"):
        service.create("apimanagement:Api", "two", api_inputs("two", "/OpenAI/"))


# --- backends, named values, loggers, diagnostics


def test_pools(service):
    member = backend(service)
    with pytest.raises(RefusedError, match=r"Backend with id '/backends/node-2' of the pool could not be found"):
        pool(service, "node-1", "node-2")
    made = pool(service, "node-1")
    with pytest.raises(RefusedError, match=r"'pool' is a pool; a pool cannot be in a pool"):
        pool(service, "pool", name="outer")
    with pytest.raises(
        RefusedError, match=r"(?s)The Backend 'node-1' is used by the following entities:.*/backends/pool"
    ):
        service.delete(member)
    service.delete(made)
    service.delete(member)


def test_single_backends(service):
    with pytest.raises(RefusedError, match=r"needs 'url' and 'protocol'"):
        service.create("apimanagement:Backend", "x", b.in_gateway(backendId="x", url="http://a"))
    with pytest.raises(RefusedError, match=r"Cannot find a property 'nowhere'"):
        backend(service, credentials={"header": {"Authorization": ["Bearer {{nowhere}}"]}})
    with pytest.raises(RefusedError, match=r"only one circuit breaker rule"):
        backend(service, circuitBreaker={"rules": [{"name": "a"}, {"name": "b"}]})


def test_a_named_value_in_use_stays(service):
    value = named_value(service)
    product(service)
    policy = product_policy(service, '<set-header name="Authorization"><value>{{backend-key}}</value></set-header>')
    with pytest.raises(RefusedError, match=r"(?s)Property 'backend-key' is used by.*/products/team/policies/policy"):
        service.delete(value)
    with pytest.raises(RefusedError, match=r"Property 'backend-key' is used by"):
        service.change(value, displayName="renamed")
    service.delete(policy)
    service.delete(value)


def test_named_values(service):
    named_value(service)
    with pytest.raises(RefusedError, match=r"display name 'Backend-Key' already exists"):
        named_value(service, "other", displayName="Backend-Key")
    with pytest.raises(RefusedError, match=r"may only contain letters"):
        named_value(service, "bad", displayName="no spaces")
    with pytest.raises(RefusedError, match=r"needs a 'value' or a 'keyVault'"):
        named_value(service, "empty", value=None)
    secret = named_value(service, "hidden", secret=True, value=Secret("CANARY-named-value"))
    assert "value" not in secret.outputs and "CANARY" not in service.cloud.store.path.read_text()
    assert service.invoke("apimanagement:listNamedValue", **b.in_gateway(namedValueId="backend-key")) == {
        "value": "plain"
    }


READER = "/subscriptions/0/providers/Microsoft.Authorization/roleDefinitions/4633458b-17de-408a-b874-0445c86b69e6"


def test_a_named_value_from_key_vault_needs_identity_and_role(ground):
    vault = b.vault(ground)
    secret = b.secret(ground)
    uri = secret.outputs["properties"]["secretUri"]
    service = b.gateway(ground)
    body = b.in_gateway(namedValueId="key", displayName="key", secret=True, keyVault={"secretIdentifier": uri})
    with pytest.raises(RefusedError, match=r"no system-assigned identity"):
        ground.create("apimanagement:NamedValue", "key", body)
    service = ground.change(service, identity={"type": "SystemAssigned"})
    principal = service.outputs["identity"]["principalId"]
    with pytest.raises(
        RefusedError, match=rf"Access denied to Key Vault kv-test: the identity {principal} may not get secrets"
    ):
        ground.create("apimanagement:NamedValue", "key", body)
    role = {"scope": vault.id, "principalId": principal, "roleDefinitionId": READER}
    ground.create("authorization:RoleAssignment", "reader", role)
    made = ground.create("apimanagement:NamedValue", "key", body)
    assert made.outputs["keyVault"]["lastStatus"]["code"] == "Success"
    missing = {**body, "namedValueId": "m", "displayName": "m", "keyVault": {"secretIdentifier": f"{uri}x"}}
    with pytest.raises(RefusedError, match=r"secret 'backend-keyx' of vault 'kv-test' was not found"):
        ground.create("apimanagement:NamedValue", "m", missing)


def test_a_user_assigned_identity_can_read_too(ground):
    identity = ground.create("managedidentity:UserAssignedIdentity", "id", b.in_group(resourceName="id-gateway"))
    vault = b.vault(ground)
    uri = b.secret(ground).outputs["properties"]["secretUri"]
    b.gateway(ground, identity={"type": "UserAssigned", "userAssignedIdentities": [identity.id]})
    reference = {"secretIdentifier": uri, "identityClientId": identity.outputs["clientId"]}
    body = b.in_gateway(namedValueId="key", displayName="key", secret=True, keyVault=reference)
    role = {"scope": vault.id, "principalId": identity.outputs["principalId"], "roleDefinitionId": READER}
    ground.create("authorization:RoleAssignment", "reader", role)
    assert ground.create("apimanagement:NamedValue", "key", body).id
    stranger = {**body, "namedValueId": "s", "displayName": "s"}
    stranger["keyVault"] = {**reference, "identityClientId": "00000000-1111-2222-3333-444444444444"}
    with pytest.raises(RefusedError, match=r"is not assigned to the service"):
        ground.create("apimanagement:NamedValue", "s", stranger)


def test_loggers_and_diagnostics(service):
    with pytest.raises(RefusedError, match=r"Logger with id 'insights' could not be found"):
        service.create(
            "apimanagement:Diagnostic",
            "d",
            b.in_gateway(diagnosticId="applicationinsights", loggerId="/loggers/insights"),
        )
    with pytest.raises(RefusedError, match=r"credentials need"):
        service.create("apimanagement:Logger", "l", b.in_gateway(loggerId="insights", loggerType="applicationInsights"))
    body = b.in_gateway(
        loggerId="insights",
        loggerType="applicationInsights",
        credentials={"connectionString": Secret("CANARY-connection-string")},
    )
    logger = service.create("apimanagement:Logger", "insights", body)
    assert logger.plain["credentials"]["connectionString"].startswith("{{Logger-Credentials--")
    assert "CANARY" not in service.cloud.store.path.read_text()
    with pytest.raises(RefusedError, match=r"diagnostic id 'mine' is not one of"):
        service.create("apimanagement:Diagnostic", "d", b.in_gateway(diagnosticId="mine", loggerId="/loggers/insights"))
    frontend = {"request": {"body": {"bytes": 9000}}}
    with pytest.raises(RefusedError, match=r"body bytes are 9000, allowed: 0 to 8192"):
        diagnostic = b.in_gateway(diagnosticId="applicationinsights", loggerId=logger.id, frontend=frontend)
        service.create("apimanagement:Diagnostic", "d", diagnostic)
    body = b.in_gateway(
        diagnosticId="applicationinsights", loggerId=logger.id, frontend={"request": {"body": {"bytes": 0}}}
    )
    service.create("apimanagement:Diagnostic", "d", body)
    with pytest.raises(RefusedError, match=r"(?s)The Logger 'insights' is used by.*/diagnostics/applicationinsights"):
        service.delete(logger)


def test_built_in_groups_stay(service):
    group = service.import_("apimanagement:Group", "g", f"{service.state.of_type('apimanagement:Group')[0].id}")
    with pytest.raises(RefusedError, match=r"System group 'administrators' cannot be deleted"):
        service.delete(group)


# --- policies


@pytest.mark.parametrize(
    ("inbound", "words"),
    [
        (
            '<set-backend-service backend-id="nowhere" />',
            r"'set-backend-service': Backend with id 'nowhere' could not be found",
        ),
        ('<include-fragment fragment-id="none" />', r"Policy fragment with id 'none' could not be found"),
        ("<set-header name='a'><value>{{missing}}</value></set-header>", r"Cannot find a property 'missing'"),
        ("<forward-request />", r"'forward-request': this policy is not allowed in section 'inbound'"),
        ("<broken>", r"'policies' is not well-formed XML on line 1"),
    ],
)
def test_policies_that_do_not_hold(service, inbound, words):
    product(service)
    with pytest.raises(RefusedError, match=rf"ValidationError.*{words}"):
        product_policy(service, inbound)


def test_the_root_the_sections_and_the_id(service):
    body = policy_inputs("")
    with pytest.raises(RefusedError, match=r"root element must be 'policies'"):
        service.create("apimanagement:Policy", "p", {**body, "value": "<policy />"})
    with pytest.raises(RefusedError, match=r"section 'sideways' is not one of"):
        service.create("apimanagement:Policy", "p", {**body, "value": "<policies><sideways /></policies>"})
    with pytest.raises(RefusedError, match=r"nothing above the global policy"):
        service.create("apimanagement:Policy", "p", body)
    with pytest.raises(RefusedError, match=r"policy's id must be 'policy', not 'mine'"):
        service.create("apimanagement:Policy", "p", {**body, "policyId": "mine"})


def test_raw_expressions_only_in_rawxml(service):
    product(service)
    inbound = '<set-variable name="a" value="@(context.Request.Headers.GetValueOrDefault("x","") == "1" && 1 < 2)" />'
    made = product_policy(service, inbound)
    assert made.outputs["format"] == "xml"
    assert "&amp;&amp; 1 &lt; 2" in made.outputs["value"]
    with pytest.raises(RefusedError, match=r"In format 'xml' expressions must be XML-escaped; use 'rawxml'"):
        service.change(made, format="xml")


def test_the_service_reformats_and_the_diff_stays_empty(service):
    product(service)
    made = product_policy(service, "<!-- note --><rate-limit calls='5' renewal-period='60' />")
    assert made.outputs["value"] != made.inputs["value"]
    assert '\r\n\t\t<rate-limit calls="5" renewal-period="60" />' in made.outputs["value"]
    fresh = service.refresh(made)
    assert fresh.inputs == made.inputs and not service.diff(fresh, made.inputs).changes
    edited = policy_inputs("<rate-limit calls='6' renewal-period='60' />", productId="team")
    assert service.diff(fresh, edited).detailed.keys() == {"value"}


def test_an_edit_by_somebody_else_is_drift(service):
    product(service)
    made = product_policy(service, "")
    with service.cloud.store.transaction() as state:
        state.get(made.id).properties["value"] = "<policies />"
    assert service.diff(service.refresh(made), made.inputs).diffs == ["value"]


def test_fragments(service):
    body = b.in_gateway(
        id="strip", format="rawxml", value="<fragment><set-header name='a' exists-action='delete' /></fragment>"
    )
    fragment = service.create("apimanagement:PolicyFragment", "strip", body)
    product(service)
    policy = product_policy(service, '<include-fragment fragment-id="strip" />')
    with pytest.raises(
        RefusedError, match=r"(?s)The Policy Fragment 'strip' is used by the following entities:.*/products/team"
    ):
        service.delete(fragment)
    service.delete(policy)
    service.delete(fragment)
    with pytest.raises(RefusedError, match=r"root element must be 'fragment'"):
        service.create("apimanagement:PolicyFragment", "bad", {**body, "value": "<policies />"})


def test_a_backend_named_by_a_policy_stays(service):
    product(service)
    made = backend(service)
    product_policy(service, '<set-backend-service backend-id="node-1" />')
    with pytest.raises(RefusedError, match=r"(?s)The Backend 'node-1' is used by.*/products/team/policies/policy"):
        service.delete(made)


def test_expressions_as_backend_ids_are_not_judged(service):
    product(service)
    assert product_policy(service, '<set-backend-service backend-id="@((string)context.Variables["b"])" />').id


def test_consumption_lacks_policies(ground):
    b.gateway(ground, tier="Consumption", capacity=0)
    product(ground)
    with pytest.raises(RefusedError, match=r"'llm-token-limit': this policy is not supported in tier 'Consumption'"):
        product_policy(
            ground, '<llm-token-limit counter-key="k" tokens-per-minute="5" estimate-prompt-tokens="true" />'
        )


ATTRIBUTE = st.text("ab&<>\"'() {}@", max_size=8)


@hypothesis.given(st.lists(ATTRIBUTE, max_size=4))
def test_the_services_layout_is_a_fixed_point(values):
    inner = "".join(f"<set-variable name={quoteattr(value)} />" for value in values)
    text = f"<policies><inbound>{inner}</inbound></policies>"
    first = policy_xml.read(text, "xml", "policies").text
    assert policy_xml.read(first, "xml", "policies").text == first
    names = [s.attributes["name"] for s in policy_xml.read(first, "xml", "policies").statements]
    assert [name.split() for name in names] == [value.split() for value in values]


@pytest.mark.parametrize(
    "expression",
    ['@(a("x", \'"\') > 1)', '@{ return "}" + b["k"]; }', '@(x ? "a\\"b" : \'c\')', '@("&amp;" + 1)'],
)
def test_expressions_end_where_their_bracket_closes(expression):
    text = policy_xml.escape_expressions(f'<a b="{expression}" c="1" />')
    element = ET.fromstring(text)
    assert element.attrib["c"] == "1"
