"""What must run again runs again, by plain `pulumi up`: a failed apply, a failed delivery, a rotated secret.

The tests run in order and share one stack. The simulated Azure runs no command twice with equal settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pulumi import automation

from infra.operations import failures
from infra.rehearsal.record import Change
from simulator.azure.rules.compute.run_command import KIND
from simulator.azure.state.store import Store
from tests.engine.life import Life

NODES = ("huddleai-h100-node-1", "huddleai-h100-node-2")
APPLY = {f"{node}-apply" for node in NODES}
SENTENCE = "readiness: not ready after 600 s"


@pytest.fixture(scope="module")
def life(open_life: Callable[[str], Life]) -> Life:
    return open_life("dev")


def fault(match: str, times: int = 1) -> str:
    return f"faults: [{{kind: run_command, times: {times}, match: {{name: '{match}'}}, log_tail: ['{SENTENCE}']}}]"


def views(life: Life) -> dict[str, dict[str, Any]]:
    """How the last run of each command ended, by node and command."""
    return {"/".join(one.id.split("/")[-3::2]): one.properties["instanceView"] for one in life.azure.of_type(KIND)}


def attempts(life: Life, command: str = "huddle-apply") -> list[int]:
    """The attempts that the commands of both nodes were made with."""
    made = sorted(life.azure.of_type(KIND), key=lambda one: one.id)
    parameters = [one.properties["parameters"] for one in made if one.name == command]
    return [int(value["value"]) for given in parameters for value in given if value["name"] == "HUDDLE_ATTEMPT"]


def test_a_failed_apply_fails_the_first_up(life: Life) -> None:
    life.faults(fault("huddleai-h100-node-1-apply"))
    text, _ = life.fail(life.sandbox.stack.up)
    failure = failures.explain(text, life.plan())
    assert failure is not None
    assert failure.what == f"The node came up but does not serve; its log ends: {SENTENCE}"


def test_the_next_plain_up_runs_it_again_and_nothing_else_of_what_was_done(life: Life) -> None:
    before = views(life)
    life.faults(None)
    assert life.preview().touched()["huddleai-h100-node-1-apply"] is Change.UPDATE, "the preview must say so beforehand"
    life.up()
    after = views(life)
    assert {view["executionState"] for view in after.values()} == {"Succeeded"}
    again = {name for name, view in before.items() if after[name]["startTime"] != view["startTime"]}
    assert again == {"huddleai-h100-node-1/huddle-apply"}
    assert attempts(life) == [2, 1]


def test_after_that_nothing_is_left_to_do(life: Life) -> None:
    assert life.preview().touched() == {}
    before = views(life)
    assert life.up().touched() == {}
    assert views(life) == before
    assert attempts(life) == [2, 1]


def test_it_may_fail_more_than_once(life: Life) -> None:
    life.faults(fault("huddleai-h100-node-1-apply", times=2))
    life.edit(lambda settings: settings["serving"]["models"].update({"hl": {"system_prompt": "Answer in verse."}}))
    for _ in range(2):
        life.fail(life.sandbox.stack.up)
    life.up()
    assert attempts(life) == [4, 1]
    assert life.preview().touched() == {}


def test_a_rotated_secret_is_fetched_by_every_node(life: Life) -> None:
    before = views(life)
    life.sandbox.stack.set_config("h100-inference:backend_key", automation.ConfigValue("another-key", secret=True))
    touched = life.up().touched()
    assert {name for name in touched if name.endswith("-apply")} == APPLY
    after = views(life)
    again = {name for name, view in before.items() if after[name]["startTime"] != view["startTime"]}
    assert again == {f"{node}/huddle-apply" for node in NODES}
    assert life.preview().touched() == {}


def test_a_secret_rotated_twice_while_the_apply_failed_is_fetched(life: Life) -> None:
    life.faults(fault("huddleai-h100-node-2-apply"))
    life.sandbox.stack.set_config("h100-inference:ray_token", automation.ConfigValue("token-2", secret=True))
    life.fail(life.sandbox.stack.up)
    life.sandbox.stack.set_config("h100-inference:ray_token", automation.ConfigValue("token-3", secret=True))
    life.up()
    assert {view["executionState"] for view in views(life).values()} == {"Succeeded"}
    assert life.preview().touched() == {}


def test_a_command_whose_vm_is_gone_stops_no_preview(life: Life) -> None:
    """Somebody deleted the VM in the portal: the program asks for a command that is not there."""
    with Store(life.sandbox.azure_state).transaction() as azure:
        (vm,) = (one for one in azure.of_type("compute:VirtualMachine") if one.name == NODES[0])
        for gone in list(azure.resources.values()):
            if gone.id.lower().startswith(vm.id.lower()):
                azure.resources.pop(gone.id.lower())
    touched = life.preview().touched()
    assert set(touched) <= {f"{NODES[0]}-apply"}, "its counter begins anew, no other command is touched"
