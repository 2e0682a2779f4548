"""What lives inside an API Management service, for tests."""

from tests.simulator.azure import builders as b


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
