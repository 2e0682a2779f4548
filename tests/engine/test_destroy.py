"""Destroying: what others hold does not stop it, a GPU VM never stays, and nothing is left over."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli import leftovers
from infra.cli.main import app
from infra.operations import arm, failures, stack_state
from infra.rehearsal.existing import subscription
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store
from tests.engine.life import Life

LINK_STAYS = """
faults:
  - {kind: subnet_link, seconds: 3600}
"""
GROUP_IS_BUSY = """
faults:
  - {kind: conflict, times: 4, match: {type: "resources:ResourceGroup"}, operations: [delete]}
"""
GATEWAY_IS_BUSY = """
faults:
  - {kind: conflict, times: 4, match: {type: "apimanagement:ApiManagementService"}, operations: [delete]}
"""
VM = "compute:VirtualMachine"


@pytest.fixture(scope="module")
def life(open_life: Callable[[str], Life]) -> Life:
    return open_life("dev")


@pytest.fixture
def infra(life: Life, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[int, Any]]]:
    """The command line against this life's Azure and state; returns exit code and JSON."""
    server = serve(Store(life.sandbox.azure_state))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name, value in life.sandbox.stack.workspace.env_vars.items():
        monkeypatch.setenv(name, value)  # so that the command reads this life's state
    monkeypatch.setenv(arm.ENDPOINT_VARIABLE, f"http://127.0.0.1:{server.server_address[1]}")
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", subscription(life.plan()))
    monkeypatch.setattr(leftovers, "EVERY_S", 0.01)

    def run(*words: str) -> tuple[int, Any]:
        done = CliRunner().invoke(app, [*words, "-s", "dev", "--json"])
        assert done.stdout, repr(done.exception)
        return done.exit_code, json.loads(done.stdout)

    yield run
    server.shutdown()
    thread.join()
    server.server_close()


def somebody_subscribes(life: Life) -> None:
    """As a portal user does: to a published product of ours."""
    with Store(life.sandbox.azure_state).transaction() as azure:
        product = azure.of_type("apimanagement:Product")[0]
        service = product.id.rpartition("/products/")[0]
        said = {"displayName": "Grace's app", "scope": product.id, "state": "active", "ownerId": "/users/grace"}
        made = Resource(f"{service}/subscriptions/5f1e", "azure-native:apimanagement:Subscription", said)
        made.refs = [product.id.lower()]
        azure.put(made)


@pytest.fixture(scope="module", autouse=True)
def running(life: Life) -> None:
    life.up()


def test_all_of_a_running_stack_is_known(life: Life, infra: Callable[..., tuple[int, Any]]) -> None:
    assert infra("leaks") == (0, {"subscription": subscription(life.plan()), "stacks": ["dev"], "leaks": []})


def test_a_stack_that_the_backend_does_not_have_knows_nothing(infra: Callable[..., tuple[int, Any]]) -> None:
    assert stack_state.known_ids("nowhere") == frozenset()


def test_a_gateway_that_is_busy_keeps_no_vm_alive(life: Life) -> None:
    life.faults(GATEWAY_IS_BUSY)
    life.fail(lambda on_event: life.sandbox.stack.destroy(on_event=on_event, continue_on_error=True))
    assert life.azure.of_type(VM) == []
    assert life.azure.of_type("apimanagement:ApiManagementService")


def test_an_interrupted_destroy_is_told_by_the_next_up(life: Life, infra: Callable[..., tuple[int, Any]]) -> None:
    text, _ = life.fail(life.sandbox.stack.up)
    known = failures.explain(text, life.plan())
    assert known is not None, text[-800:]
    assert "make destroy STACK=dev" in known.next_step
    code, said = infra("leaks")
    assert code == 1
    kinds = {leak["kind"] for leak in said["leaks"]}
    assert "Microsoft.Compute/disks" in kinds
    assert all(leak["next_step"].startswith("run `make destroy STACK=dev` again") for leak in said["leaks"])


def test_neither_a_subscriber_nor_a_link_that_stays_stops_it(life: Life) -> None:
    life.faults(LINK_STAYS)
    somebody_subscribes(life)
    life.destroy()
    assert life.azure.resources == {}


def test_then_two_names_are_left_and_purging_frees_them(life: Life, infra: Callable[..., tuple[int, Any]]) -> None:
    names = life.plan().names
    code, said = infra("leaks")
    assert code == 1
    left = {(leak["kind"], leak["name"], leak["next_step"]) for leak in said["leaks"]}
    step = "`infra purge -s dev`"
    assert left == {("soft-deleted gateway", names.gateway, step), ("soft-deleted key vault", names.key_vault, step)}
    code, said = infra("purge", "--yes")
    assert (code, {each["name"] for each in said["purged"]}) == (0, {names.gateway, names.key_vault})
    assert infra("leaks")[0] == 0
    assert infra("purge", "--yes") == (0, {"purged": []})


def test_the_next_up_works_with_the_same_names(life: Life) -> None:
    life.faults(None)
    life.up()
    assert len(life.azure.of_type(VM)) == 2
    assert life.preview().touched() == {}


def test_a_group_that_could_not_go_goes_with_the_next_destroy(life: Life) -> None:
    life.faults(GROUP_IS_BUSY)
    life.fail(life.sandbox.stack.destroy)
    assert life.azure.of_type(VM) == []
    assert life.azure.of_type("network:VirtualNetwork")
    # The next destroy must not ask the gateway: it is gone, and the outputs still name it.
    assert not life.azure.of_type("apimanagement:ApiManagementService")
    assert "gateway_id" in life.sandbox.stack.outputs()
    life.destroy()
    assert life.azure.resources == {}
