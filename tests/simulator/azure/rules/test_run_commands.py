"""Managed run commands: when they run, what they answer, how they fail."""

import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from simulator.azure.rules.compute import run_command
from tests.simulator.azure import builders as b
from tests.simulator.azure.engine import PartialError, RefusedError

RUN_COMMAND = run_command.KIND
ATTEMPT = {"parameters": [{"name": "ATTEMPT", "value": "2"}]}


def fails(azure, **more):
    azure.set_faults({"faults": [{"kind": "run_command", "match": {"name": "apply"}, "times": 1, **more}]})


def failure(azure, **inputs):
    """The resource that a failed creation leaves, and what was said of it."""
    with pytest.raises(PartialError) as caught:
        azure.create(RUN_COMMAND, "apply", b.run_command_inputs(**inputs))
    return caught.value.resource, str(caught.value)


def reported(text):
    """The handler's JSON in an error."""
    return json.loads(re.search(r"Error message: '(.*)'\. More information", text)[1])


def test_a_run_command_says_that_it_is_simulated(azure):
    b.node(azure)
    made = azure.create(RUN_COMMAND, "apply", b.run_command_inputs())
    view = made.outputs["instanceView"]
    assert (view["exitCode"], view["executionState"]) == (0, "Succeeded")
    assert view["output"].startswith("simulated: a script of 10 bytes") and "node-1" in view["output"]


def test_a_failing_script_fails_the_deployment_with_the_handlers_json(azure):
    fails(azure, exit_code=7, log_tail=["starting", "the node does not serve"])
    b.node(azure)
    half, text = failure(azure)
    assert 'Code="VMExtensionProvisioningError"' in text and "type 'RunCommandHandlerLinux'" in text
    said = reported(text)
    assert said == half.plain["instanceView"] and half.outputs["provisioningState"] == "Failed"
    assert said["executionState"] == "Failed" and said["exitCode"] == 7
    assert said["executionMessage"] == "Execution failed: command terminated with exit status=7"
    assert said["output"].endswith("starting") and said["error"] == "the node does not serve"


def test_equal_settings_are_not_run_again_and_the_failure_stays(azure):
    """What azure-sdk-for-net#47307 and the handler's source say: a tag is no setting, so nothing runs."""
    fails(azure)
    b.node(azure)
    half, text = failure(azure)
    with pytest.raises(PartialError) as again:
        azure.change(half, tags={"try": "2"})
    assert reported(str(again.value)) == reported(text), "the same run, with its own times"
    assert azure.change(half, **ATTEMPT).outputs["instanceView"]["exitCode"] == 0


def test_a_fault_strikes_what_runs_and_not_what_is_kept(azure):
    fails(azure)
    b.node(azure)
    half, text = failure(azure)
    fails(azure, message="another fault")
    with pytest.raises(PartialError) as again:
        azure.change(half, tags={"try": "2"})
    assert reported(str(again.value)) == reported(text)


@pytest.mark.parametrize(
    "settings",
    [
        {"source": {"script": "echo other"}},
        ATTEMPT,
        {"protectedParameters": [{"name": "TOKEN", "value": "x"}]},
        {"timeoutInSeconds": 60},
        {"runAsUser": "somebody"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_every_setting_makes_it_run(azure, settings):
    b.node(azure)
    made = azure.create(RUN_COMMAND, "apply", b.run_command_inputs())
    same = azure.change(made, tags={"try": "2"})
    assert same.outputs["instanceView"] == made.outputs["instanceView"]
    assert (
        azure.change(made, **settings).outputs["instanceView"]["startTime"] != same.plain["instanceView"]["startTime"]
    )


def test_made_again_under_its_name_it_is_not_run_either(azure):
    fails(azure)
    vm = b.node(azure)
    half, text = failure(azure)
    azure.delete(half)
    assert reported(failure(azure)[1]) == reported(text)
    azure.delete(vm)
    azure.create("compute:VirtualMachine", "node-1", vm.inputs)
    made = azure.create(RUN_COMMAND, "apply", b.run_command_inputs())
    assert made.outputs["instanceView"]["exitCode"] == 0, "another machine has run nothing yet"


def test_a_failing_script_without_the_flag_is_only_reported(azure):
    fails(azure, exit_code=3)
    b.node(azure)
    made = azure.create(RUN_COMMAND, "apply", b.run_command_inputs(treatFailureAsDeploymentFailure=False))
    assert made.outputs["instanceView"]["exitCode"] == 3 and made.outputs["provisioningState"] == "Succeeded"


def test_a_script_past_its_own_time_is_killed_and_its_log_is_told(azure):
    fails(azure, takes_s=4_000, log_tail=["staging", "never said"])
    b.node(azure)
    said = reported(failure(azure, timeoutInSeconds=3_600)[1])
    assert (said["executionState"], said["exitCode"], said["error"]) == ("Failed", -1, "")
    assert said["output"].endswith("staging")


@pytest.mark.parametrize("allowed_s", [0, 10_000])
def test_past_ninety_minutes_the_deployment_fails_without_a_log(azure, allowed_s):
    fails(azure, takes_s=6_000)
    b.node(azure)
    half, text = failure(azure, timeoutInSeconds=allowed_s)
    assert 'Code="VMExtensionProvisioningTimeout"' in text and "starting services" not in text
    assert half.plain["instanceView"]["executionState"] == "Running"


def test_what_it_needs(azure):
    vm = b.node(azure)
    with pytest.raises(RefusedError, match=r"'source' is missing"):
        azure.create(RUN_COMMAND, "apply", b.run_command_inputs(source={}))
    with pytest.raises(RefusedError, match=r"ParentResourceNotFound"):
        azure.create(RUN_COMMAND, "apply", b.run_command_inputs("nobody"))
    with azure.cloud.store.transaction() as state:
        state.get(vm.id).notes["power"] = "deallocated"
    with pytest.raises(RefusedError, match=r"when the VM is not running"):
        azure.create(RUN_COMMAND, "apply", b.run_command_inputs())


def test_a_vm_has_room_for_25(azure):
    b.node(azure)
    made = [azure.create(RUN_COMMAND, f"c{i}", b.run_command_inputs(runCommandName=f"c{i}")) for i in range(25)]
    with pytest.raises(RefusedError, match=r"maximum number of managed Run commands \(max=25, current=25\)"):
        azure.create(RUN_COMMAND, "one-more", b.run_command_inputs(runCommandName="one-more"))
    assert azure.change(made[0], **ATTEMPT).id, "those that are there can change"


def test_the_last_view_is_shown_to_those_who_ask_for_it(azure):
    b.node(azure)
    azure.create(RUN_COMMAND, "apply", b.run_command_inputs(**ATTEMPT))
    where = {"resourceGroupName": b.GROUP, "vmName": "node-1", "runCommandName": "apply"}
    function = "compute:getVirtualMachineRunCommandByVirtualMachine"
    assert "instanceView" not in azure.invoke(function, **where)
    seen = azure.invoke(function, **where, expand="instanceView")
    assert seen["instanceView"]["executionState"] == "Succeeded"
    assert seen["parameters"] == ATTEMPT["parameters"] and seen["provisioningState"] == "Succeeded"


def test_run_commands_go_with_their_vm(azure):
    vm = b.node(azure)
    azure.create(RUN_COMMAND, "apply", b.run_command_inputs())
    azure.delete(vm)
    assert azure.state.of_type(RUN_COMMAND) == []


@hypothesis.given(st.text(min_size=0, max_size=6_000))
@hypothesis.example("ä" * 4_000)
def test_a_stream_is_cut_to_its_last_four_kibibytes(text):
    tail = run_command._tail(text)
    kept = tail.lstrip("\ufffd")
    assert text.endswith(kept) and len(kept.encode()) <= 4096
    assert len(kept.encode()) > 4096 - 4 or len(text.encode()) <= 4096
