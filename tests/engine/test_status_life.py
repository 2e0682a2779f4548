"""`infra status` of a stack that the real engine brought up on the simulated Azure. The tests run in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from components import alert_rules
from infra import program
from infra.cli.main import app
from infra.operations import api_versions, arm, arm_ids
from simulator.azure import alarms, watch
from simulator.azure.arm import serve
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Store
from tests.engine.life import Life
from tests.unit.infra.test_arm import running

FIRST, SECOND = "huddleai-h100-node-1", "huddleai-h100-node-2"
SENTENCE = "huddle-apply: readiness: not ready after 600 s"


@pytest.fixture(scope="module")
def life(open_life: Callable[[str], Life]) -> Iterator[Life]:
    """The dev stack, asked about by its own copy of the stack file."""
    life = open_life("dev")
    life.edit(lambda settings: settings.update(monitoring={"alert_emails": ["ops@mail.example.org"]}))
    with running(serve(Store(life.sandbox.azure_state))) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv(arm.ENDPOINT_VARIABLE, endpoint)
        patch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
        patch.setattr(program, "load_azure_plan", lambda _: life.plan())
        yield life


def status(*, code: int) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["status", "-s", "dev", "--json"])
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_before_the_first_up_nothing_is_there(life: Life) -> None:
    found = status(code=1)
    assert {node["power"] for node in found["nodes"]} == {"gone"}
    assert f"{FIRST} has no VM; run `make up STACK=dev`" in found["reasons"]
    assert (found["roll"], found["alarms"], found["pools"]) == (None, [], [])


def test_a_first_up_that_failed_names_the_node_and_its_last_words(life: Life) -> None:
    life.faults(f"faults: [{{kind: run_command, match: {{name: '{SECOND}-apply'}}, log_tail: ['{SENTENCE}']}}]")
    life.fail(life.sandbox.stack.up)
    found = status(code=1)
    assert [node["readiness"] for node in found["nodes"]] == ["serving", "failed"]
    assert f"the last apply of {SECOND} failed: {SENTENCE}; run `make up STACK=dev`" in found["reasons"]
    assert found["roll"]["result"] == "failed"


def test_after_the_next_up_every_node_serves_the_bundle_of_this_checkout(life: Life) -> None:
    life.faults(None)
    life.up()
    found = status(code=0)
    assert found["bundle"]["everywhere"] is True
    assert found["roll"]["result"] == "succeeded"
    assert found["pools"] == [{"id": "nodes", "nodes": [FIRST, SECOND]}]
    assert [node["apply"]["attempt"] for node in found["nodes"]] == [1, 2]


def test_an_update_shows_the_order_of_the_roll_and_where_it_stopped(life: Life) -> None:
    before = status(code=0)["bundle"]["wanted"]
    life.edit(lambda settings: settings["serving"]["models"].update({"hl": {"system_prompt": "Answer in verse."}}))
    life.faults(f"faults: [{{kind: run_command, times: 1, match: {{name: '{FIRST}-apply'}}}}]")
    life.fail(life.sandbox.stack.up)
    found = status(code=1)
    assert [turn["node"] for turn in found["roll"]["order"]] == [SECOND, FIRST], "the second was not reached again"
    assert found["nodes"][1]["bundle"] == before
    assert found["bundle"]["wanted"] != before
    life.faults(None)
    life.up()
    assert status(code=0)["roll"]["result"] == "succeeded"


def test_a_deallocated_vm_is_named_until_it_is_started(life: Life) -> None:
    vm = arm_ids.vm(life.plan(), SUBSCRIPTION, SECOND)
    with arm.connect() as azure:
        azure.begin(vm, "deallocate", api_versions.COMPUTE)
        assert status(code=1)["reasons"] == [f"{SECOND} is deallocated; run `infra start -s dev`"]
        operation = azure.begin(vm, "start", api_versions.COMPUTE)
        while operation and not azure.ended(operation):
            pass
    assert status(code=0)["serves"] is True


def test_an_alarm_as_the_engine_made_it_fires_is_told_and_clears(life: Life) -> None:
    """The VM of the second node is not available for five minutes; Azure looks again and again."""
    name, now = life.plan().names.alert("vm-unavailable"), datetime.now(UTC)
    store = Store(life.sandbox.azure_state)

    def look(value: float) -> None:
        nonlocal now
        now += timedelta(minutes=5)
        with store.transaction() as azure:
            rule = alarms.rule(azure, name)
            (second,) = (vm for vm in rule.properties["scopes"] if vm.endswith(SECOND))
            series = {(second, "VmAvailabilityMetric"): [watch.Sample(now, value, {"Context": "Platform"})]}
            watch.check(azure, rule, now, watch.Measured(metrics=series))

    look(0.0)
    (alarm,) = status(code=0)["alarms"]
    assert (alarm["rule"], alarm["severity"], alarm["target"]) == (name, 1, SECOND)
    for _ in range(watch.QUIET_CHECKS):
        look(1.0)
    assert status(code=0)["alarms"] == []


def test_a_log_alarm_that_azure_switched_off_is_named_until_an_up_with_a_refresh(life: Life) -> None:
    name = life.plan().names.alert("unmetered")
    assert status(code=0)["alarms_off"] == []
    with Store(life.sandbox.azure_state).transaction() as azure:
        alarms.rule(azure, name).properties["enabled"] = False
    assert status(code=0)["alarms_off"] == [name]
    life.refresh()
    life.up()
    assert status(code=0)["alarms_off"] == []


def test_every_alarm_reaches_the_same_people(life: Life) -> None:
    rules = life.azure.of_type(*alarms.RULES)
    (group,) = life.azure.of_type("monitor:ActionGroup")
    assert {rule.name for rule in rules} == {life.plan().names.alert(alert.name) for alert in alert_rules.alerts()}
    assert {group_id for rule in rules for group_id in alarms.told(rule)} == {group.id}
    assert all(alarms.told(rule) for rule in rules)
