"""`infra leaks` and `infra purge` at their edges; for what they find see test_leaks.py and tests/engine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from huddle.errors import Fault, InputError
from infra import program
from infra.cli import leftovers
from infra.cli.main import app
from infra.operations import api_versions, arm, stack_state, subscription
from infra.operations.arm_subscription import Locked, SoftDeleted
from plan import stack_file
from plan.azure.model import AzurePlan
from simulator.azure.arm import serve
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Deleted, Resource, Store
from tests.unit.builders import plan
from tests.unit.infra.test_arm import running

ALL = ", ".join(stack_file.names())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = Store(tmp_path / "azure.json")
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
    monkeypatch.setattr(stack_state, "known_ids", lambda _: frozenset())
    with running(serve(found, page=1)) as endpoint:
        monkeypatch.setenv(arm.ENDPOINT_VARIABLE, endpoint)
        yield found


def run(*words: str):
    return CliRunner().invoke(app, [*words])


def test_without_a_stack_every_stack_is_asked_for(store: Store) -> None:
    for stack in ("dev", "prod"):
        group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{plan(stack).names.resource_group}"
        with store.transaction() as state:
            state.put(Resource(group, "azure-native:resources:ResourceGroup", {}))
    done = run("leaks")
    assert done.exit_code == 1
    assert f"2 left over of {ALL} in subscription" in done.stdout
    assert "next: `az group delete --name huddleai-prod-rg`" in done.stdout


@pytest.mark.parametrize("known", [frozenset(), frozenset({"/subscriptions/x"})])
def test_a_state_that_knows_nothing_is_said_before_anybody_deletes_what_another_one_knows(
    store: Store, monkeypatch: pytest.MonkeyPatch, known: frozenset[str]
) -> None:
    group = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{plan('prod').names.resource_group}"
    with store.transaction() as state:
        state.put(Resource(group, "azure-native:resources:ResourceGroup", {}))
        state.deleted.append(Deleted("/x", "azure-native:keyvault:Vault", plan().names.key_vault, "eastus2", 0.0, 9e9))
    monkeypatch.setattr(stack_state, "known_ids", lambda _: known)
    done = run("leaks")
    assert ("warning: the state of prod where Pulumi is logged in knows nothing" in done.stderr) == (not known)
    assert "state of dev" not in done.stderr  # a locked name is nobody's


def test_a_stack_with_a_subscription_of_its_own_is_looked_for_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "6f3c2a10-0000-4000-8000-000000000001"
    read = stack_file.read

    def with_own(stack: str, *root: Path) -> dict[str, object]:
        return read(stack, *root) | ({subscription.STACK_KEY: own} if stack == "dev" else {})

    monkeypatch.setattr(stack_file, "read", with_own)
    assert f"Nothing of {ALL} in subscription {SUBSCRIPTION}, {own} is left over" in run("leaks").stdout
    monkeypatch.delenv("ARM_SUBSCRIPTION_ID")
    assert subscription.of("dev", {}) == own


def test_a_stack_that_is_wrong_is_told_and_left_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(stack: str) -> AzurePlan:
        if stack == "prod":
            raise InputError(Fault("stacks/Pulumi.prod.yaml", "nodes", "is required"))
        return plan(stack)

    monkeypatch.setattr(program, "load_azure_plan", load)
    done = run("leaks")
    assert (done.exit_code, done.stdout.startswith(f"Nothing of {ALL.replace(', prod', '')} in subscription")) == (
        0,
        True,
    )
    assert "warning: prod is left out: stacks/Pulumi.prod.yaml: nodes: is required" in done.stderr


def test_nothing_left_is_said_with_exit_code_0(store: Store) -> None:
    done = run("leaks", "-s", "dev")
    assert (done.exit_code, done.stdout.startswith("Nothing of dev in subscription")) == (0, True)


def test_a_protected_stack_is_never_purged(store: Store) -> None:
    error = run("purge", "-s", "prod", "--yes").exception
    assert isinstance(error, InputError)
    assert "environment: is prod: its deleted gateway and key vault can be restored" in str(error)


def test_what_azure_keeps_stops_a_purge_before_anything_is_purged(store: Store) -> None:
    names = plan().names
    gateway = Deleted("/g", "azure-native:apimanagement:ApiManagementService", names.gateway, "eastus2", 0.0, 9e9)
    vault = Deleted("/x", "azure-native:keyvault:Vault", names.key_vault, "eastus2", 0.0, 86_400.0, True)
    with store.transaction() as state:
        state.deleted += [gateway, vault]
    error = run("purge", "-s", "dev", "--yes").exception
    assert isinstance(error, InputError)
    assert f"name_salt: {names.key_vault} has purge protection, so Azure keeps it until 1970-01-02" in str(error)
    assert store.read().deleted == [gateway, vault]


VAULT = SoftDeleted(Locked.VAULT, plan().names.key_vault, "East US 2", None)


def test_a_purge_waits_until_azure_lists_the_name_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    lists, pauses, asked = iter([[VAULT], [VAULT], [VAULT], []]), list[float](), list[str]()
    monkeypatch.setattr(leftovers, "_locked", lambda *_: next(lists))
    monkeypatch.setattr(arm.Arm, "send", lambda _, *words: asked.append(" ".join(words)))
    monkeypatch.setattr(leftovers.time, "sleep", pauses.append)
    done = run("purge", "-s", "dev", "--yes")
    assert (done.exit_code, done.stdout) == (0, f"purged: {VAULT.name}\n")
    assert pauses == [leftovers.EVERY_S] * 2
    place = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.KeyVault/locations/eastus2/deletedVaults/{VAULT.name}"
    assert asked == [f"POST {place}/purge {api_versions.KEY_VAULT}"], "a region by its short name"


def test_a_name_that_azure_does_not_let_go_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_locked", lambda *_: [VAULT])
    monkeypatch.setattr(leftovers, "PURGE_S", -1.0)
    monkeypatch.setattr(arm.Arm, "send", lambda *_: None)
    error = run("purge", "-s", "dev", "--yes").exception
    assert isinstance(error, arm.ArmError)
    assert f"Azure still holds {VAULT.name} after" in str(error)


def test_a_purge_without_yes_asks_and_changes_nothing(store: Store) -> None:
    buried = Deleted("/x", "azure-native:keyvault:Vault", plan().names.key_vault, "eastus2", 0.0, 9e9)
    with store.transaction() as state:
        state.deleted.append(buried)
    error = run("purge", "-s", "dev").exception
    assert isinstance(error, InputError)
    assert f"asks before it purges; add --yes. Purge {buried.name}?" in str(error)
    assert store.read().deleted == [buried]


def test_the_subscription_is_the_environments_or_the_one_of_az(monkeypatch: pytest.MonkeyPatch) -> None:
    assert subscription.current({"AZURE_SUBSCRIPTION_ID": "b", "ARM_SUBSCRIPTION_ID": "a"}) == "a"
    monkeypatch.setattr(subscription.shutil, "which", lambda _: "/usr/bin/az")
    said = subprocess.CompletedProcess([], 0, "c\n")
    monkeypatch.setattr(subscription.subprocess, "run", lambda *_, **__: said)
    assert subscription.current({}) == "c"
    said.returncode = 1
    with pytest.raises(InputError, match="ARM_SUBSCRIPTION_ID: is not set and `az account show` names none"):
        subscription.current({})
