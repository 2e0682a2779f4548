"""APIs, products, subscriptions and their locks; backends, named values, loggers, diagnostics."""

import json

import pytest

from simulator.plugin.values import Secret
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import RefusedError
from tests.simulator.azure.gateway_builders import (
    api_inputs,
    backend,
    named_value,
    pool,
    product,
    product_policy,
    subscription_inputs,
)


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
    with pytest.raises(RefusedError, match=r"ValidationError.*displayName' must match"):
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


def test_behind_the_vaults_firewall_no_user_assigned_identity_reads(ground):
    identity = ground.create("managedidentity:UserAssignedIdentity", "id", b.in_group(resourceName="id-gateway"))
    vault = b.vault(ground, networkAcls={"bypass": "AzureServices", "defaultAction": "Deny"})
    uri = b.secret(ground).outputs["properties"]["secretUri"]
    both = {"type": "SystemAssigned, UserAssigned", "userAssignedIdentities": [identity.id]}
    service = b.gateway(ground, identity=both)
    for number, principal in enumerate((identity.outputs["principalId"], service.outputs["identity"]["principalId"])):
        role = {"scope": vault.id, "principalId": principal, "roleDefinitionId": READER}
        ground.create("authorization:RoleAssignment", f"reader-{number}", role)
    reference = {"secretIdentifier": uri, "identityClientId": identity.outputs["clientId"]}
    body = b.in_gateway(namedValueId="key", displayName="key", secret=True, keyVault=reference)
    with pytest.raises(RefusedError, match=r"400.*its firewall is enabled.*not a user-assigned one"):
        ground.create("apimanagement:NamedValue", "key", body)
    del reference["identityClientId"]
    assert ground.create("apimanagement:NamedValue", "key", body).id


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
    with pytest.raises(RefusedError, match=r"ValidationError.*body.bytes' is 9000; allowed: at most 8192"):
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
