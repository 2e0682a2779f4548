from __future__ import annotations

import json
from typing import Any

from components.gateway.api import openapi_document
from gateway_policies import render as policies
from huddle.wrapper.routes import Route, resolve
from tests.unit.builders import plan
from tests.unit.components.gateway_program import build, standard, written
from tests.unit.recording import CANARY, assert_no_canary_outside_secrets

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


def pools(**gateway: Any) -> dict[str, list[dict[str, Any]]]:
    """The members of each pool of a stack of two nodes."""
    recording = build(plan(gateway=gateway))
    return {
        pool["backendId"]: pool["pool.services"]
        for pool in recording.of("apimanagement:Backend")
        if pool["type"] == "Pool"
    }


def ids(members: list[dict[str, Any]]) -> list[str]:
    return [member["id"].rsplit("/", 1)[-1] for member in members]


def test_the_pool_holds_every_node_alike() -> None:
    recording = standard()
    pool = recording.one("apimanagement:Backend", "pool")
    nodes = [backend for backend in recording.of("apimanagement:Backend") if backend["type"] == "Single"]
    assert (pool["backendId"], pool["type"], pool["url"]) == ("nodes", "Pool", None)
    assert pool["pool.services"] == [{"id": node.id, "priority": 1, "weight": 1} for node in nodes]


def test_weights_and_priorities_are_the_stack_files() -> None:
    (members,) = pools(pool={"2": {"weight": 3, "priority": 2}}).values()
    assert [(member["weight"], member["priority"]) for member in members] == [(1, 1), (3, 2)]


def test_a_drained_node_leaves_the_pool_and_nothing_else() -> None:
    before, after = build(plan()), build(plan(gateway={"drain": [2]}))
    changed = [
        one.name for one, other in zip(before.resources, after.resources, strict=True) if one.inputs != other.inputs
    ]
    assert changed == ["gateway-backends-pool"]
    assert ids(after.one("apimanagement:Backend", "pool")["pool.services"]) == ["node-1"]


def test_each_product_goes_to_the_nodes_that_serve_its_models() -> None:
    models = {"llama-3.2-3b": {"nodes": [1]}, "llama-3.1-8b": {"nodes": [2]}}
    products = {
        name: {"display_name": name, "models": [model]}
        for name, model in (("small", "llama-3.2-3b"), ("large", "llama-3.1-8b"))
    }
    recording = build(plan(serving={"models": models}, gateway={"products": products}))
    found = [backend for backend in recording.of("apimanagement:Backend") if backend["type"] == "Pool"]
    assert {pool["backendId"]: ids(pool["pool.services"]) for pool in found} == {
        "nodes-1": ["node-1"],
        "nodes-2": ["node-2"],
    }
    for policy in recording.of("apimanagement:ProductPolicy"):
        number = {"small": "1", "large": "2"}[policy["productId"]]
        assert f'backend-id="nodes-{number}"' in policy["value"]
        for pool in found:
            assert recording.waits_for(policy, pool)


# --- API, policy and backend key


def test_the_api_takes_the_key_where_azures_clients_put_it(preview: bool) -> None:
    api = standard(preview).one("apimanagement:Api")
    assert (api["apiId"], api["path"], api["protocols"]) == ("openai", "v1", ["https"])
    assert api["subscriptionRequired"] is True
    assert api["subscriptionKeyParameterNames"] == {"header": "Ocp-Apim-Subscription-Key", "query": "subscription-key"}
    assert api["serviceUrl"] is None
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
    assert (api["format"], api["policyId"], api["value"]) == ("rawxml", "policy", policies.api_policy(plan().gateway))
    limits = {policy["productId"]: policy for policy in recording.of("apimanagement:ProductPolicy")}
    assert set(limits) == {"large", "small"}
    assert 'calls="7"' in limits["small"]["value"]
    assert 'calls="60"' in limits["large"]["value"]
    assert all((policy["format"], policy["policyId"]) == ("rawxml", "policy") for policy in limits.values())
    assert not recording.of("apimanagement:Policy"), "one exists before us (docs/facts/api-management.md#global-policy)"


def test_the_policy_comes_after_everything_that_it_names() -> None:
    recording = standard()
    policy = recording.one("apimanagement:ApiPolicy")
    for named in (
        recording.one("apimanagement:Backend", "pool"),
        recording.one("apimanagement:NamedValue", "backend-key"),
    ):
        assert recording.waits_for(policy, named)


def test_the_backend_key_goes_by_value_and_secret_so_that_the_same_up_changes_nodes_and_gateway(preview: bool) -> None:
    recording = standard(preview)
    key = recording.one("apimanagement:NamedValue", "backend-key")
    assert (key["keyVault"], key["value"], key["secret"]) == (None, f"{CANARY}-backend-key", True)
    assert key.secret_paths == {"value"}
    assert_no_canary_outside_secrets(recording)


def test_nothing_but_the_gateway_itself_is_waited_for_before_it_is_filled() -> None:
    recording = standard()
    other = recording.one("network:PublicIPPrefix")
    assert not any(recording.waits_for(resource, other) for resource in written(recording))
