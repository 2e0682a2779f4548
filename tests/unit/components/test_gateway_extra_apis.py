"""APIs for clients that put their key elsewhere: made when asked for, opened by products only, with every safeguard."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from gateway_policies.extra_apis import beside, extra_apis, rendered
from gateway_policies.rules import violations
from huddle.errors import InputError
from tests.unit.builders import plan
from tests.unit.components.gateway_program import TWO_PRODUCTS, build, standard
from tests.unit.recording import Recording

BOTH: dict[str, Any] = {"azure_openai_api": True, "bearer_api": True, "products": TWO_PRODUCTS}
PLAN = plan(gateway=BOTH)
OPENED = {extra.id: extra for extra in extra_apis(PLAN.gateway)}


@cache
def both(preview: bool = False) -> Recording:
    return build(PLAN, preview)


def test_nothing_is_opened_unasked() -> None:
    assert [api["apiId"] for api in standard().of("apimanagement:Api")] == ["openai"]
    assert extra_apis(plan().gateway) == ()


def test_each_is_an_api_with_its_policy_and_a_silent_diagnostic(preview: bool) -> None:
    recording = both(preview)
    apis = {api["apiId"]: api for api in recording.of("apimanagement:Api")}
    assert {name: (api["path"], api["subscriptionRequired"]) for name, api in apis.items()} == {
        "openai": ("v1", True),
        "azure-openai": ("openai", True),
        "bearer": ("bearer/v1", False),
    }
    assert apis["azure-openai"]["subscriptionKeyParameterNames"] == {"header": "api-key", "query": "subscription-key"}
    assert len({api["displayName"] for api in apis.values()}) == 3
    for name, extra in OPENED.items():
        api = recording.one("apimanagement:Api", f"{name}-api")
        assert api["value"] == extra.document
        policy = recording.one("apimanagement:ApiPolicy", f"{name}-policy")
        assert (policy["format"], policy["value"]) == ("rawxml", extra.policy)
        diagnostic = recording.one("apimanagement:ApiDiagnostic", f"{name}-diagnostic")
        for way in ("frontend", "backend"):
            assert diagnostic[way]["request"]["body"]["bytes"] == diagnostic[way]["response"]["body"]["bytes"] == 0


def test_products_open_the_keyed_api_and_never_the_other() -> None:
    """A product over an API without keys would be one without limits."""
    links = both().of("apimanagement:ProductApi")
    opened = sorted((link["productId"], link["apiId"]) for link in links if link["apiId"] != "openai")
    assert opened == [("large", "azure-openai"), ("small", "azure-openai")]


def test_azures_paths_are_rewritten_and_described() -> None:
    extra = OPENED["azure-openai"]
    document = json.loads(extra.document)
    deployed = {path for path in document["paths"] if path.startswith("/deployments/")}
    assert deployed == {
        f"/deployments/{{deployment}}/{name}" for name in ("chat/completions", "completions", "embeddings")
    }
    assert set(document["paths"]) - deployed == {"/models", "/responses"}
    for path in deployed:
        (operation,) = document["paths"][path].values()
        assert [parameter["name"] for parameter in operation["parameters"]] == ["deployment"]
        assert (
            f'template="{path.removeprefix("/deployments/{deployment}")}"' in extra.operations[operation["operationId"]]
        )
    assert len(extra.operations) == 3
    policies = both().of("apimanagement:ApiOperationPolicy")
    assert {policy["operationId"]: policy["value"] for policy in policies} == dict(extra.operations)


def test_no_policy_breaks_a_rule() -> None:
    found = rendered(PLAN.gateway)
    assert [policy.scope for policy in found] == [
        "api/openai",
        "api/azure-openai",
        "api/azure-openai/create-chat-completion",
        "api/azure-openai/create-completion",
        "api/azure-openai/create-embedding",
        "api/bearer",
        "product/large",
        "product/small",
    ]
    assert all(not violations(policy.text) for policy in found)


def test_extra_apis_stand_beside_the_api_on_the_gateways_own_host() -> None:
    moved = plan(gateway={**BOTH, "api_path": "team/v1"})
    assert [extra.path for extra in extra_apis(moved.gateway)] == ["team/openai", "team/bearer/v1"]
    assert beside(moved.gateway, "x") == "team/x"
    assert f'base-url="https://{moved.names.gateway}.azure-api.net/team/v1"' in extra_apis(moved.gateway)[1].policy
    service = f"/subscriptions/{'0' * 8}-0000-0000-0000-{'0' * 12}/resourceGroups/g/providers/Microsoft.ApiManagement"
    existing = {"existing": {"id": f"{service}/service/theirs", "subnet": "10.9.0.0/24"}}
    theirs = plan(gateway={**BOTH, **existing})
    assert theirs.gateway.host == "theirs.azure-api.net"


def test_a_gateway_that_may_not_reach_itself_has_no_bearer_api() -> None:
    with pytest.raises(InputError, match=r"gateway\.bearer_api: needs a gateway that reaches itself"):
        plan(gateway={"tier": "Developer", "inbound": "internal", "bearer_api": True})
