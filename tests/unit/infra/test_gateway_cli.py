"""`infra products` and `infra keys` with an Azure and a state of the test's own; what errors of the gateway mean."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from huddle.errors import Fault, HuddleError, InputError
from infra import program
from infra.cli.main import app
from infra.operations import arm, failures
from infra.operations import stack_outputs as live_stack
from infra.program import load_plan
from plan.azure.gateway_model import ExistingGatewayPlan
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store

GATEWAY = "/subscriptions/0/resourceGroups/g/providers/Microsoft.ApiManagement/service/gw"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A gateway with a product `old` of ours, to which Grace subscribed; returns the stack's outputs, to be changed."""
    store = Store(tmp_path / "azure.json")
    with store.transaction() as state:
        state.put(Resource(GATEWAY, "azure-native:apimanagement:ApiManagementService", {}))
        old = f"{GATEWAY}/products/old"
        state.put(Resource(old, "azure-native:apimanagement:Product", {"displayName": "Old"}))
        grace = {"displayName": "Grace's app", "scope": old, "state": "active", "ownerId": "/users/grace"}
        state.put(Resource(f"{GATEWAY}/subscriptions/5f1e", "azure-native:apimanagement:Subscription", grace))
    server = serve(store)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    known = {"gateway_id": GATEWAY, "products": ["old", "developers"]}
    monkeypatch.setenv(arm.ENDPOINT_VARIABLE, f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setattr(live_stack, "outputs", lambda _: known)
    yield known
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_up_that_would_take_somebodys_subscription_is_refused_with_names(azure: dict[str, Any]) -> None:
    for flags in ((), ("--leaving",)):
        done = run("products", "-s", "dev", *flags)
        assert done.exit_code == 1
        assert "error: product 'old' is no longer in the stack file" in done.stderr
        assert "Grace's app of grace" in done.stderr


def test_a_destroy_of_our_own_gateway_says_what_others_lose(azure: dict[str, Any]) -> None:
    done = run("products", "-s", "dev", "--destroy")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: product 'old' has 1 subscriptions that this program did not make: Grace's")
    assert "they go with the gateway" in done.stderr


def test_a_destroy_in_somebody_elses_gateway_is_refused_with_names(
    azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = load_plan("dev")
    existing = ExistingGatewayPlan(GATEWAY, "g", "gw")
    shared = replace(plan, gateway=replace(plan.gateway, existing=existing))
    monkeypatch.setattr(program, "load_azure_plan", lambda _: shared)
    done = run("products", "-s", "dev", "--destroy")
    assert done.exit_code == 1
    assert "Grace's app of grace; move or delete them in the portal first, nothing was deleted" in done.stderr


def test_a_stack_that_never_came_up_has_nothing_to_lose(azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    del azure["gateway_id"]
    assert run("products", "-s", "dev", "--destroy").exit_code == 0

    def none(_: str) -> dict[str, Any]:
        raise live_stack.NoStackError

    monkeypatch.setattr(live_stack, "outputs", none)
    assert run("products", "-s", "dev", "--destroy").exit_code == 0


@pytest.mark.parametrize("shared", [False, True])
def test_an_interrupted_destroy_whose_gateway_is_gone_goes_on(
    azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    azure["gateway_id"] = GATEWAY.replace("/gw", "/gone")
    plan = load_plan("dev")
    existing = ExistingGatewayPlan(GATEWAY, "g", "gw") if shared else None
    monkeypatch.setattr(
        program, "load_azure_plan", lambda _: replace(plan, gateway=replace(plan.gateway, existing=existing))
    )
    done = run("products", "-s", "dev", "--destroy")
    assert (done.exit_code, done.stderr) == (0, "")


def test_an_azure_that_does_not_answer_keeps_no_vm_alive(
    azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(arm.ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    done = run("products", "-s", "dev", "--destroy")
    assert done.exit_code == 0
    assert done.stderr.startswith("warning: whether others subscribed to the gateway is not known: Azure did not")


@pytest.mark.parametrize(("prefix", "told"), [("dev-", True), ("", False)])
def test_an_up_that_gives_subscriptions_new_keys_says_what_keeps_them(
    azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch, prefix: str, told: bool
) -> None:
    azure["products"] = ["developers"]
    plan = load_plan("dev")
    products = tuple(replace(each, id=f"{prefix}{each.name}") for each in plan.gateway.products)
    shared = replace(plan, gateway=replace(plan.gateway, products=products))
    monkeypatch.setattr(program, "load_azure_plan", lambda _: shared)
    done = run("products", "-s", "dev", "--leaving")
    assert done.exit_code == 0
    said = "warning: product developers becomes dev-developers, and subscriptions get new keys; `gateway.existing."
    assert done.stderr.startswith(said) == told


def test_a_gateway_that_is_gone_keeps_no_up_away(azure: dict[str, Any]) -> None:
    azure["gateway_id"] = f"{GATEWAY}-gone"
    assert run("products", "-s", "dev", "--leaving").exit_code == 0
    assert isinstance(run("products", "-s", "dev").exception, arm.NotThereError)


def test_where_no_product_leaves_azure_is_not_even_asked(
    azure: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    azure["products"] = ["Developers"]
    monkeypatch.setenv(arm.ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    assert run("products", "-s", "dev", "--leaving").exit_code == 0


def test_without_state_nothing_can_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> dict[str, Any]:
        raise live_stack.NoStackError

    monkeypatch.setattr(live_stack, "outputs", none)
    assert run("products", "-s", "dev", "--leaving").exit_code == 0


def test_a_state_that_cannot_be_read_lets_no_up_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: str) -> dict[str, Any]:
        raise InputError(Fault("stacks/Pulumi.dev.yaml", "", "Pulumi did not give the stack's outputs within 120 s"))

    monkeypatch.setattr(live_stack, "outputs", silent)
    assert isinstance(run("products", "-s", "dev", "--leaving").exception, InputError)


def test_the_list_says_whose_is_what(azure: dict[str, Any]) -> None:
    azure["products"] = ["developers"]
    done = run("products", "-s", "dev")
    assert done.exit_code == 0
    assert "products of others: old (Old)" in done.stdout
    document = json.loads(run("products", "-s", "dev", "--json").stdout)
    assert [product["id"] for product in document["foreign_products"]] == ["old"]


def test_a_stack_without_a_gateway_is_told_to_come_up_first(azure: dict[str, Any]) -> None:
    del azure["gateway_id"]
    for arguments in (("products",), ("keys", "rotate", "developers/playground", "--yes")):
        caught = run(*arguments, "-s", "dev").exception
        assert isinstance(caught, InputError)
        assert "run `make up STACK=dev` first" in str(caught)


def test_a_subscription_that_azure_does_not_know_is_a_sentence(azure: dict[str, Any]) -> None:
    done = run("keys", "rotate", "-s", "dev", "developers/playground", "--yes")
    assert isinstance(done.exception, HuddleError) and done.exception.exit_code == 1
    assert "Azure refused (ResourceNotFound)" in str(done.exception)


def test_stacks_of_another_directory_must_lie_in_one_named_so(tmp_path: Path) -> None:
    caught = run("rehearse", "-s", "premium", "--stacks-dir", str(tmp_path)).exception
    assert isinstance(caught, InputError)
    assert "allowed: a directory named stacks" in str(caught)


@pytest.mark.parametrize(
    ("said", "what", "step"),
    [
        (
            "Product 'old' has subscriptions (/subscriptions/5f1e). Delete them first.",
            "Product old has",
            "infra products",
        ),
        (
            "Blocking all public network access by setting property `publicNetworkAccess` of API Management service gw "
            "is not enabled during service creation.",
            "does not create a gateway whose public endpoint is closed",
            "then set it to disabled",
        ),
        (
            'Code="OperationSupportedInSkuForApiVersions" Message="Operation on PremiumV2 SKU is only supported in the '
            'api-versions 2025-03-01-preview"',
            "does not take tier PremiumV2",
            "newer pulumi-azure-native",
        ),
    ],
)
def test_errors_of_the_gateway_are_explained(said: str, what: str, step: str) -> None:
    failure = failures.explain(said, load_plan("dev"))
    assert failure is not None
    assert what in failure.what
    assert step in failure.next_step
