from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import Any

import pulumi
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pulumi_azure_native import network

from components.gateway import Gateway, GatewayArgs, policies
from components.gateway.api import openapi_document
from components.gateway.entities import KeyParameter, subscription_id
from components.gateway.internal_dns import zone_names
from components.gateway.products import Products, ProductsArgs
from huddle.wrapper.routes import Route, resolve
from infra import outputs
from infra.plan import Plan, ProductPlan
from infra.skus import GATEWAY_TIERS
from infra.vocabulary import GatewayInbound, GatewayTier
from simulator.values import UNKNOWN, Secret
from tests.unit.azure_outputs import OUTPUTS
from tests.unit.builders import arm_id, plan, scope, secret
from tests.unit.recording import CANARY, Recorded, Recording, assert_no_canary_outside_secrets, run_program

APIM = "azure-native:apimanagement:"
SERVICE, SUBSCRIPTION = "apimanagement:ApiManagementService", "apimanagement:Subscription"
COMBINATIONS = [(facts.tier, inbound) for facts in GATEWAY_TIERS.values() for inbound in facts.inbound]
CLASSIC = (GatewayTier.DEVELOPER, GatewayTier.PREMIUM)
VNET = arm_id("Microsoft.Network/virtualNetworks", "vnet")
IDENTITY = arm_id("Microsoft.ManagedIdentity/userAssignedIdentities", "gateway")
KEY_URI = "https://vault.vault.azure.net/secrets/backend-key"
PRIVATE_ADDRESS = "10.0.1.4"
TWO_PRODUCTS: dict[str, Any] = {
    "small": {"display_name": "Small", "subscriptions": ["web", "app"], "requests_per_minute": 7, "published": False},
    "large": {"display_name": "Large", "description": "Much.", "approval_required": True, "subscriptions": ["jobs"]},
}


def service_outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**OUTPUTS[SERVICE](inputs), "privateIPAddresses": [PRIVATE_ADDRESS]}


def build(built: Plan, preview: bool = False, **changes: Any) -> Recording:
    def program() -> Mapping[str, Any]:
        ready = network.PublicIPPrefix("ready", resource_group_name="group", public_ip_prefix_name="ready")
        args: dict[str, Any] = {
            "scope": scope(built),
            "gateway": built.gateway,
            "subnet_id": f"{VNET}/subnets/gateway",
            "identity_id": IDENTITY,
            "identity_client_id": "client-id",
            "backend_key_secret_uri": KEY_URI,
            "insights_id": arm_id("Microsoft.Insights/components", "insights"),
            "insights_connection_string": secret("insights"),
            "workspace_id": arm_id("Microsoft.OperationalInsights/workspaces", "logs"),
            "endpoint_subnet_id": f"{VNET}/subnets/endpoints",
            "gateway_zone_id": arm_id("Microsoft.Network/privateDnsZones", "privatelink.azure-api.net"),
            "ready_after": [ready],
            **changes,
        }
        gateway = Gateway("gateway", GatewayArgs(**args))
        return {
            "url": gateway.gateway_url,
            "portal": gateway.portal_url,
            "name": gateway.service_name,
            "keys": pulumi.Output.from_input(dict(gateway.product_keys)),
        }

    return run_program(program, built.stack, preview, outputs={SERVICE: service_outputs})


@cache
def recorded(tier: GatewayTier, inbound: GatewayInbound, preview: bool = False) -> Recording:
    return build(plan(gateway={"tier": tier.value, "inbound": inbound.value, "products": TWO_PRODUCTS}), preview)


def standard(preview: bool = False) -> Recording:
    return recorded(GatewayTier.STANDARD_V2, GatewayInbound.PUBLIC, preview)


def written(recording: Recording) -> list[Recorded]:
    """Everything that is written into the service, in the order of registration."""
    return [
        resource
        for resource in recording.resources
        if resource.type.startswith(APIM) and resource.type != f"azure-native:{SERVICE}"
    ]


# --- The service


@pytest.mark.parametrize(("tier", "inbound"), COMBINATIONS)
def test_every_tier_and_way_in_makes_a_whole_gateway(tier: GatewayTier, inbound: GatewayInbound, preview: bool) -> None:
    recording = recorded(tier, inbound, preview)
    service = recording.one(SERVICE)
    assert service["serviceName"].startswith("huddleai-dev-")
    assert service["sku"] == {"name": tier.value, "capacity": 1}
    assert service["virtualNetworkType"] == ("Internal" if inbound is GatewayInbound.INTERNAL else "External")
    assert service["virtualNetworkConfiguration.subnetResourceId"] == f"{VNET}/subnets/gateway"
    assert service["identity"] == {"type": "UserAssigned", "userAssignedIdentities": {IDENTITY: {}}}
    assert service["publicNetworkAccess"] == "Enabled"
    assert (service["developerPortalStatus"], service["legacyPortalStatus"]) == ("Enabled", "Disabled")
    timeout = GATEWAY_TIERS[tier].create_timeout
    assert service.timeouts == {"create": timeout, "update": timeout, "delete": timeout}
    assert len(recording.of("network:PublicIPAddress")) == (tier in CLASSIC)
    assert len(recording.of("network:PrivateEndpoint")) == (inbound is GatewayInbound.PRIVATE_ENDPOINT)
    assert bool(recording.of("privatedns:PrivateZone")) == (inbound is GatewayInbound.INTERNAL)
    assert len(recording.of(SUBSCRIPTION)) == 3
    assert_no_canary_outside_secrets(recording)


def test_public_access_is_closed_when_the_stack_says_so() -> None:
    gateway = {"inbound": "private-endpoint", "public_access": "disabled"}
    assert build(plan(gateway=gateway)).one(SERVICE)["publicNetworkAccess"] == "Disabled"


@pytest.mark.parametrize(("stack", "protected"), [("dev", False), ("prod", True)])
def test_prod_protects_the_service_and_nothing_that_changes_with_the_stack_file(stack: str, protected: bool) -> None:
    recording = build(plan(stack))
    assert recording.one(SERVICE).protect is protected
    assert not any(resource.protect for resource in written(recording))


@pytest.mark.parametrize(("tier", "inbound"), [COMBINATIONS[0], (GatewayTier.STANDARD_V2, GatewayInbound.PUBLIC)])
def test_old_tls_is_off_and_weak_ciphers_too_where_a_tier_lets_one_choose(
    tier: GatewayTier, inbound: GatewayInbound
) -> None:
    properties = recorded(tier, inbound).one(SERVICE)["customProperties"]
    prefix = "Microsoft.WindowsAzure.ApiManagement.Gateway.Security."
    off = {key.removeprefix(prefix) for key, value in properties.items() if value == "False"}
    assert len(off) == len(properties)
    assert off >= {"Protocols.Tls10", "Protocols.Tls11", "Backend.Protocols.Tls10", "Backend.Protocols.Tls11"}
    assert ("Ciphers.TripleDes168" in off) == (tier in CLASSIC)
    assert not any("GCM_SHA384" in cipher or "ECDHE_RSA_WITH_AES_128_GCM" in cipher for cipher in off)


def test_a_classic_gateway_gets_a_fixed_address_of_its_own() -> None:
    recording = recorded(GatewayTier.PREMIUM, GatewayInbound.INTERNAL)
    address = recording.one("network:PublicIPAddress")
    assert address["publicIpAddressName"] == "huddleai-dev-gateway-ip"
    assert (address["sku.name"], address["publicIPAllocationMethod"]) == ("Standard", "Static")
    assert recording.one(SERVICE)["publicIpAddressId"] == address.id


# --- Private ways in


def test_a_private_endpoint_reaches_the_gateway_before_anything_is_written_into_it(preview: bool) -> None:
    recording = recorded(GatewayTier.STANDARD_V2, GatewayInbound.PRIVATE_ENDPOINT, preview)
    endpoint = recording.one("network:PrivateEndpoint")
    (connection,) = endpoint["privateLinkServiceConnections"]
    assert connection["groupIds"] == ["Gateway"]
    assert endpoint["privateEndpointName"] == "huddleai-dev-gateway-pe"
    assert endpoint["subnet.id"] == f"{VNET}/subnets/endpoints"
    (zone,) = recording.one("network:PrivateDnsZoneGroup")["privateDnsZoneConfigs"]
    assert zone["privateDnsZoneId"].endswith("/privatelink.azure-api.net")
    assert recording.waits_for(endpoint, recording.one("network:PublicIPPrefix"))
    assert recording.waits_for(endpoint, recording.one(SERVICE))
    for resource in written(recording):
        assert recording.waits_for(resource, endpoint), f"{resource.name} may be written while the endpoint is"


def test_a_private_endpoint_without_its_zone_is_an_error() -> None:
    with pytest.raises(ValueError, match="DNS zone"):
        build(plan(gateway={"inbound": "private-endpoint"}), gateway_zone_id=None)


@pytest.mark.parametrize(
    ("tier", "hosts"),
    [
        (GatewayTier.PREMIUM, ["", ".portal", ".developer", ".management", ".scm"]),
        (GatewayTier.PREMIUM_V2, [""]),
    ],
)
def test_an_internal_gateways_names_resolve_to_its_address(tier: GatewayTier, hosts: list[str], preview: bool) -> None:
    recording = recorded(tier, GatewayInbound.INTERNAL, preview)
    name = recording.one(SERVICE)["serviceName"]
    zones = [zone["privateZoneName"] for zone in recording.of("privatedns:PrivateZone")]
    assert sorted(zones) == sorted(f"{name}{host}.azure-api.net" for host in hosts)
    records = recording.of("privatedns:PrivateRecordSet")
    assert len(records) == len(zones)
    for record in records:
        assert (record["relativeRecordSetName"], record["recordType"]) == ("@", "A")
        if not preview:
            assert record["aRecords"] == [{"ipv4Address": PRIVATE_ADDRESS}]
            zone = next(
                z for z in recording.of("privatedns:PrivateZone") if z["privateZoneName"] == record["privateZoneName"]
            )
            assert recording.waits_for(record, zone)
    for link in recording.of("privatedns:VirtualNetworkLink"):
        assert link["virtualNetwork.id"] == VNET
    assert not any(recording.waits_for(resource, records[0]) for resource in written(recording))


def test_no_zone_hides_other_peoples_gateways() -> None:
    for classic in (True, False):
        assert all(zone.startswith("ours.") for zone in zone_names("ours", classic=classic))


# --- One write at a time


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_no_two_writes_are_in_flight(preview: bool) -> None:
    recording = standard(preview)
    entities = written(recording)
    assert len(entities) == 20
    for one, other in combinations(entities, 2):
        assert recording.waits_for(one, other) or recording.waits_for(other, one), f"{one.name} and {other.name}"


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,6}[a-z0-9]", fullmatch=True)


def product(name: str, subscriptions: set[str]) -> ProductPlan:
    return ProductPlan(
        id=name,
        display_name=name,
        description="",
        models=("m",),
        system_prompt=None,
        requests_per_minute=1,
        tokens_per_minute=1,
        approval_required=False,
        published=False,
        subscriptions=tuple(sorted(subscriptions)),
    )


def build_products(products: Sequence[ProductPlan]) -> Recording:
    def program() -> None:
        args = ProductsArgs(scope(plan()), service_name="service", api_id="api", products=tuple(products), after=[])
        Products("products", args)

    return run_program(program)


# A program runs for each example: a failing one is told as it is, without a search for a smaller one.
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(products=st.dictionaries(NAMES, st.sets(NAMES, max_size=1), min_size=2, max_size=3), data=st.data())
def test_one_more_product_leaves_the_others_as_they_were(products: dict[str, set[str]], data: st.DataObject) -> None:
    plans = {name: product(name, subscriptions) for name, subscriptions in products.items()}
    newcomer = data.draw(st.sampled_from(sorted(plans)))
    before = build_products([made for name, made in plans.items() if name != newcomer])
    after = build_products(data.draw(st.permutations(list(plans.values()))))
    for resource in before.resources:
        same = after.by_urn(resource.urn)
        assert same is not None, f"{resource.name} would be destroyed"
        assert same.inputs == resource.inputs, f"{resource.name} would change"
    made = [resource["productId"] for resource in after.of("apimanagement:Product")]
    assert made == sorted(plans), "the order must be the ids', whatever the order in the stack file"
    for first, second in pairwise(after.of("apimanagement:Product")):
        assert after.waits_for(second, first)


def sids(recording: Recording) -> list[str]:
    return [subscription["sid"] for subscription in recording.of(SUBSCRIPTION)]


@given(NAMES, NAMES, NAMES)
def test_two_subscriptions_never_share_an_id(first: str, second: str, third: str) -> None:
    assert subscription_id(f"{first}-{second}", third) != subscription_id(first, f"{second}-{third}")


# --- Nodes


def test_every_node_is_a_backend_with_a_breaker_that_no_client_can_trip(preview: bool) -> None:
    recording = standard(preview)
    nodes = [backend for backend in recording.of("apimanagement:Backend") if backend["type"] == "Single"]
    assert {backend["backendId"]: backend["url"] for backend in nodes} == {
        "node-1": "http://10.0.0.4:8000/v1",
        "node-2": "http://10.0.0.5:8000/v1",
    }
    for backend in nodes:
        assert backend["protocol"] == "http"
        assert backend["tls"] is None
        (rule,) = backend["circuitBreaker.rules"]
        assert rule["acceptRetryAfter"] is True
        assert rule["tripDuration"] == "PT30S"
        assert rule["failureCondition"]["statusCodeRanges"] == [{"min": 502, "max": 503}]
        assert rule["failureCondition"]["count"] == 3


def test_the_pool_holds_every_node_alike() -> None:
    recording = standard()
    pool = recording.one("apimanagement:Backend", "pool")
    nodes = [backend for backend in recording.of("apimanagement:Backend") if backend["type"] == "Single"]
    assert (pool["backendId"], pool["type"], pool["url"]) == ("nodes", "Pool", None)
    assert pool["pool.services"] == [{"id": node.id, "priority": 1, "weight": 1} for node in nodes]


# --- API, policy and backend key


def test_the_api_takes_the_key_where_azures_clients_put_it(preview: bool) -> None:
    api = standard(preview).one("apimanagement:Api")
    assert (api["apiId"], api["path"], api["protocols"]) == ("openai", "v1", ["https"])
    assert api["subscriptionRequired"] is True
    assert api["subscriptionKeyParameterNames"] == {"header": "Ocp-Apim-Subscription-Key", "query": "subscription-key"}
    assert api["serviceUrl"] is None
    assert KeyParameter.HEADER.value == outputs.KEY_HEADER
    assert (api["format"], api["value"]) == ("openapi+json", openapi_document())


def test_the_api_offers_exactly_what_the_wrapper_answers() -> None:
    offered = {
        (method.upper(), f"/v1{path}")
        for path, operations in json.loads(openapi_document())["paths"].items()
        for method in operations
    }
    answered = {(method, route.value) for route in Route if route.startswith("/v1/") for method in methods(route)}
    assert offered == answered


def methods(route: Route) -> list[str]:
    """What a wrapper's route answers; HEAD comes with GET and is no operation of its own."""
    answered = []
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        try:
            resolve(method, route.value)
        except Exception as refusal:
            assert getattr(refusal, "status", None) == 405
        else:
            answered.append(method)
    return answered


def test_the_document_can_be_followed_to_its_ends() -> None:
    document = json.loads(openapi_document())
    assert document["openapi"].startswith("3.0.")
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids)
    for operation in operations:
        assert operation["summary"]
        assert operation["description"]
        assert "default" in operation["responses"]

    def follow(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                target: Any = document
                for part in node["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
            for value in node.values():
                follow(value)
        elif isinstance(node, list):
            for value in node:
                follow(value)

    follow(document)


def test_policies_are_sent_raw_as_rendered(preview: bool) -> None:
    recording = standard(preview)
    api = recording.one("apimanagement:ApiPolicy")
    assert (api["format"], api["policyId"], api["value"]) == ("rawxml", "policy", policies.api_policy())
    limits = {policy["productId"]: policy for policy in recording.of("apimanagement:ProductPolicy")}
    assert set(limits) == {"large", "small"}
    assert 'calls="7"' in limits["small"]["value"]
    assert 'calls="60"' in limits["large"]["value"]
    assert all((policy["format"], policy["policyId"]) == ("rawxml", "policy") for policy in limits.values())
    assert not recording.of("apimanagement:Policy"), "a global policy exists before us (field bugs 11)"


def test_the_policy_comes_after_everything_that_it_names() -> None:
    recording = standard()
    policy = recording.one("apimanagement:ApiPolicy")
    for named in (
        recording.one("apimanagement:Backend", "pool"),
        recording.one("apimanagement:NamedValue", "backend-key"),
    ):
        assert recording.waits_for(policy, named)


def test_the_backend_key_stays_in_the_vault_and_follows_rotation() -> None:
    recording = standard()
    key = recording.one("apimanagement:NamedValue", "backend-key")
    assert key["keyVault"] == {"secretIdentifier": KEY_URI, "identityClientId": "client-id"}
    assert key["secret"] is True
    assert key["value"] is None
    assert recording.waits_for(key, recording.one("network:PublicIPPrefix")), "the role assignment may come too late"


# --- Products


def test_products_are_what_the_stack_says(preview: bool) -> None:
    recording = standard(preview)
    products = {product["productId"]: product for product in recording.of("apimanagement:Product")}
    assert set(products) == {"large", "small"}
    large, small = products["large"], products["small"]
    assert (large["displayName"], large["description"], large["approvalRequired"]) == ("Large", "Much.", True)
    assert (large["state"], small["state"]) == ("published", "notPublished")
    assert large["subscriptionRequired"] is True
    assert small["subscriptionRequired"] is True
    assert [(group["productId"], group["groupId"]) for group in recording.of("apimanagement:ProductGroup")] == [
        ("large", "developers")
    ]
    assert {link["productId"]: link["apiId"] for link in recording.of("apimanagement:ProductApi")} == {
        "large": "openai",
        "small": "openai",
    }


def test_no_key_works_before_its_products_limits_do() -> None:
    recording = standard()
    limits = {policy["productId"]: policy for policy in recording.of("apimanagement:ProductPolicy")}
    for opened in (*recording.of("apimanagement:ProductApi"), *recording.of(SUBSCRIPTION)):
        product = opened["productId"] or opened["sid"].partition("_")[0]
        assert recording.waits_for(opened, limits[product])


def test_subscriptions_are_active_and_for_one_product() -> None:
    recording = standard()
    ids = {product["productId"]: product.id for product in recording.of("apimanagement:Product")}
    assert sids(recording) == ["large_jobs", "small_app", "small_web"]
    for subscription in recording.of(SUBSCRIPTION):
        assert subscription["state"] == "active"
        assert subscription["scope"] == ids[subscription["sid"].partition("_")[0]]
        assert subscription["allowTracing"] is False
        assert subscription["primaryKey"] is None


def test_keys_are_secret_outputs_by_product_and_subscription() -> None:
    recording = standard()
    assert recording.exports["keys"] == Secret(
        {
            "large/jobs": f"{CANARY}-large_jobs-primary",
            "small/app": f"{CANARY}-small_app-primary",
            "small/web": f"{CANARY}-small_web-primary",
        }
    ) or recording.exports["keys"] == {
        key: Secret(f"{CANARY}-{key.replace('/', '_')}-primary") for key in ("large/jobs", "small/app", "small/web")
    }
    assert_no_canary_outside_secrets(recording)


def test_a_preview_asks_azure_for_no_key() -> None:
    recording = standard(preview=True)
    assert recording.calls == []
    assert recording.exports["url"] is UNKNOWN
    assert len(standard().calls) == 3


# --- What is told about the traffic


def test_no_diagnostic_sees_a_body_or_a_key(preview: bool) -> None:
    recording = standard(preview)
    diagnostics = [*recording.of("apimanagement:Diagnostic"), *recording.of("apimanagement:ApiDiagnostic")]
    assert len(diagnostics) == 2
    for diagnostic in diagnostics:
        assert diagnostic["diagnosticId"] == "applicationinsights"
        for side in ("frontend", "backend"):
            for direction in ("request", "response"):
                message = diagnostic[f"{side}.{direction}"]
                assert message["body"] == {"bytes": 0}
                assert message["headers"] == []
                assert message["dataMasking"] == {"queryParams": [{"mode": "Hide", "value": "subscription-key"}]}
        assert diagnostic["alwaysLog"] == "allErrors"
        assert diagnostic["sampling"] == {"samplingType": "fixed", "percentage": 100}
        assert diagnostic["logClientIp"] is False
        assert diagnostic["metrics"] is True
    assert diagnostics[1]["apiId"] == "openai"


def test_the_logger_names_its_secret_and_does_not_hold_it(preview: bool) -> None:
    recording = standard(preview)
    logger = recording.one("apimanagement:Logger")
    assert logger["credentials"] == {"connectionString": "{{insights-connection-string}}"}
    assert logger["loggerType"] == "applicationInsights"
    value = recording.one("apimanagement:NamedValue", "connection")
    assert (value["namedValueId"], value["displayName"]) == ("insights-connection-string",) * 2
    assert value["secret"] is True
    assert value.secret_paths == {"value"}
    assert value["value"] == f"{CANARY}-insights"
    assert recording.waits_for(logger, value)


def test_a_connection_string_that_came_unmarked_is_marked() -> None:
    recording = build(plan(), insights_connection_string=f"{CANARY}-plain")
    assert_no_canary_outside_secrets(recording)


def test_gateway_logs_go_to_log_analytics_and_no_category_that_holds_prompts() -> None:
    recording = standard()
    export = recording.one("monitor:DiagnosticSetting")
    assert export["resourceUri"] == recording.one(SERVICE).id
    assert export["workspaceId"].endswith("/workspaces/logs")
    assert export["logs"] == [{"category": "GatewayLogs", "enabled": True}]
    assert export["metrics"] == [{"category": "AllMetrics", "enabled": True}]


def test_the_stack_gets_the_gateways_addresses() -> None:
    recording = standard()
    name = recording.one(SERVICE)["serviceName"]
    assert recording.exports["url"] == f"https://{name}.azure-api.net"
    assert recording.exports["portal"] == f"https://{name}.developer.azure-api.net"
    assert recording.exports["name"] == name
