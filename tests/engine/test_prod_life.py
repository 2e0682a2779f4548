"""What differs in prod: protection, a private way in, two phases for the public endpoint."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pulumi import automation

from infra.operations import failures
from infra.rehearsal.record import Change, Record
from infra.rehearsal.steps import steps_of
from plan import stack_file
from plan.secrets import Secret
from tests.engine.life import Life

GATEWAY = "azure-native:apimanagement:ApiManagementService"


@pytest.fixture(scope="module")
def prod(open_life: Callable[[str], Life]) -> Life:
    life = open_life("prod")
    life.up()
    return life


def test_public_access_can_not_be_disabled_at_creation(open_life: Callable[[str], Life]) -> None:
    life = open_life("prod")
    life.edit(lambda settings: settings["gateway"].update(public_access="disabled"))
    text, _ = life.fail(life.sandbox.stack.up)
    assert "publicNetworkAccess" in text


def test_the_public_endpoint_closes_on_the_second_up(prod: Life) -> None:
    prod.edit(lambda settings: settings["gateway"].update(public_access="disabled"))
    record = prod.up()
    assert record.touched_types() == {GATEWAY: {Change.UPDATE}}
    (service,) = prod.azure.of_type("apimanagement:ApiManagementService")
    assert service.properties["publicNetworkAccess"] == "Disabled"


def test_every_subscription_has_a_key_of_its_own(prod: Life) -> None:
    keys = prod.sandbox.stack.outputs()["product_keys"].value
    assert set(keys) == {"batch/nightly-summaries", "chat/assistant-mobile", "chat/assistant-web"}
    assert len(set(keys.values())) == len(keys)


def test_operators_get_a_tunnel_command_for_each_node(prod: Life) -> None:
    commands = prod.sandbox.stack.outputs()["tunnel_commands"].value
    assert set(commands) == {"huddleai-h100-node-1", "huddleai-h100-node-2"}
    assert all(text.startswith("az network bastion ssh --name huddleai-prod-bastion") for text in commands.values())


def test_a_new_product_leaves_the_others_alone(prod: Life) -> None:
    def add(settings: dict[str, dict[str, dict[str, object]]]) -> None:
        settings["gateway"]["products"]["aaa-first"] = {"display_name": "First by name", "subscriptions": ["one"]}

    prod.edit(add)
    touched = prod.up().touched()
    changed = {name: change for name, change in touched.items() if not name.endswith(("-prepare", "-apply"))}
    assert set(changed.values()) == {Change.CREATE}, changed
    assert all("aaa-first" in name for name in changed)


def test_a_secret_that_leaves_the_stack_stays_in_the_vault_and_can_be_taken_over(prod: Life) -> None:
    stack, key = prod.sandbox.stack, f"{stack_file.PROJECT}:{Secret.MODEL_HUB_TOKEN.key}"
    stack.set_config(key, automation.ConfigValue("a-token", secret=True))
    assert prod.up().touched()["secrets-model-hub-token"] is Change.CREATE
    stack.remove_config(key)
    prod.up()
    (kept,) = (item for item in prod.azure.of_type("keyvault:Secret") if item.name == "model-hub-token")
    stack.set_config(key, automation.ConfigValue("another-token", secret=True))
    text, _ = prod.fail(stack.up)
    failure = failures.explain(text, prod.plan())
    assert failure is not None
    assert "still holds the secret model-hub-token" in failure.what
    parent = next(item["urn"] for item in prod.sandbox.resources() if item["urn"].endswith("::secrets"))
    # docs/runbooks/keys.md, "A secret that is there already"
    flags = ["--parent", f"above={parent}", "--protect=false", "--generate-code=false", "--yes", "-s", "prod"]
    (prod.sandbox.directory / ".venv").symlink_to(stack_file.ROOT / ".venv")
    workspace = stack.workspace
    workspace.pulumi_command.run(
        ["import", "azure-native:keyvault:Secret", "secrets-model-hub-token", kept.id, *flags],
        str(prod.sandbox.directory),
        workspace.env_vars,
    )
    assert prod.up().touched()["secrets-model-hub-token"] is Change.UPDATE
    assert prod.preview().touched() == {}


def test_destroy_is_refused_until_somebody_unprotects(prod: Life) -> None:
    refused, unprotect, destroy, leaks = steps_of(prod.plan())[-4:]
    assert [step.name for step in (refused, unprotect, destroy, leaks)] == ["guard", "unprotect", "destroy", "leaks"]
    before = len(prod.azure.resources)
    text, _ = prod.fail(lambda on_event: refused.run(prod.sandbox, on_event))
    assert "protect" in text
    assert len(prod.azure.resources) == before
    unprotect.run(prod.sandbox, lambda _: None)
    destroy.run(prod.sandbox, lambda _: None)
    assert prod.azure.resources == {}
    leaks.run(prod.sandbox, lambda _: None)
    assert leaks.check(Record(), prod.sandbox) is None
    assert leaks.tell is not None and leaks.tell(prod.sandbox) == "0 resources left, 2 names locked"


def test_a_dev_stack_that_becomes_prod_keeps_its_vaults_retention(open_life: Callable[[str], Life]) -> None:
    life = open_life("dev")
    life.up()
    life.edit(lambda settings: settings.update(environment="prod"))
    assert life.up().touched()["secrets-vault"] is Change.UPDATE
    (vault,) = life.azure.of_type("keyvault:Vault")
    assert vault.properties["properties"]["softDeleteRetentionInDays"] == 7
    assert vault.properties["properties"]["enablePurgeProtection"] is True
