"""What users see when a fault is injected, and that the next `up` puts it right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.operations import failures
from infra.rehearsal.record import VM
from plan.stack_file import ROOT
from tests.engine.life import Life

QUOTA = """
faults:
  - {kind: quota, times: 1}
"""
CAPACITY = """
faults:
  - {kind: capacity, times: 1}
"""
NO_CAPACITY_WITHOUT_ZONES = """
faults:
  - {kind: capacity, times: 1, code: OverconstrainedAllocationRequest}
"""
INTERFACE_KEPT = """
faults:
  - {kind: partial, times: 1, code: NicReservedForAnotherVm, match: {type: "compute:VirtualMachine"}}
"""
NODE_DOES_NOT_SERVE = """
faults:
  - {kind: run_command, times: 1}
"""
BUSY = """
faults:
  - {kind: conflict, times: 4, match: {type: "network:VirtualNetwork"}}
"""


@pytest.fixture(scope="module")
def life(open_life: Callable[[str], Life]) -> Life:
    return open_life("dev")


def explained(life: Life, text: str) -> failures.Failure:
    known = failures.explain(text, life.plan())
    assert known is not None, f"nobody explains: {text[-600:]}"
    return known


@pytest.mark.parametrize(
    ("example", "what", "step"),
    [
        ("fresh-subscription", "has not registered the resource provider Microsoft.Web", "az provider register"),
        ("no-trusted-launch", "does not take Trusted Launch", "nodes.image.security to standard"),
    ],
)
def test_what_a_first_up_meets_is_one_sentence(life: Life, example: str, what: str, step: str) -> None:
    life.faults((ROOT / f"simulator/examples/{example}.yaml").read_text(encoding="utf-8"))
    text, _ = life.fail(life.sandbox.stack.up)
    failure = explained(life, text)
    assert what in failure.what
    assert step in failure.next_step


def test_a_used_up_quota_is_one_sentence_and_what_was_made_is_kept(life: Life) -> None:
    life.faults(QUOTA)
    text, _ = life.fail(life.sandbox.stack.up)
    failure = explained(life, text)
    assert "quota for StandardNCadsH100v5Family in eastus2 is used up" in failure.what
    assert "2 x Standard_NC40ads_H100_v5 needs 80" in failure.what
    assert life.azure.of_type("network:VirtualNetwork"), "what was created before must be kept"


@pytest.mark.parametrize("faults", [CAPACITY, NO_CAPACITY_WITHOUT_ZONES])
def test_no_capacity_is_told_apart_from_quota(life: Life, faults: str) -> None:
    life.faults(faults)
    text, _ = life.fail(life.sandbox.stack.up)
    failure = explained(life, text)
    assert failure.what.startswith("Azure has no free Standard_NC40ads_H100_v5 in eastus2")
    assert "quota does not help" in failure.what


def test_an_interface_that_azure_keeps_can_be_tried_again(life: Life) -> None:
    life.faults(INTERFACE_KEPT)
    text, _ = life.fail(life.sandbox.stack.up)
    failure = explained(life, text)
    assert "keeps a network interface" in failure.what
    assert failure.again_in_s == failures.NIC_HELD_S


def test_a_node_that_does_not_serve_fails_the_deployment_with_its_log(life: Life) -> None:
    life.faults(NODE_DOES_NOT_SERVE)
    text, _ = life.fail(life.sandbox.stack.up)
    assert explained(life, text).what.startswith("The node came up but does not serve")


def test_the_next_up_succeeds_and_then_nothing_is_left_to_do(life: Life) -> None:
    life.faults(None)
    life.up()
    assert len(life.azure.of_type("compute:VirtualMachine")) == 2
    assert life.preview().touched() == {}


def test_a_wrong_setting_stops_the_program_before_anything_is_registered(life: Life) -> None:
    before = life.sandbox.stack_file.read_bytes()
    life.edit(lambda settings: settings["network"].update(gateway_subnet="10.0.0.0/24"))
    text, record = life.fail(life.sandbox.stack.up)
    life.sandbox.stack_file.write_bytes(before)
    assert "network.gateway_subnet: 10.0.0.0/24 overlaps nodes_subnet 10.0.0.0/24" in text
    assert VM not in record.touched_types()
    assert len(life.azure.of_type("compute:VirtualMachine")) == 2, "nothing may be lost"


def test_a_secret_in_plain_text_stops_the_program_without_repeating_it(life: Life) -> None:
    before = life.sandbox.stack_file.read_bytes()
    life.edit(lambda settings: settings.update(model_hub_token="hub-token-in-the-open"))
    text, _ = life.fail(life.sandbox.stack.up)
    life.sandbox.stack_file.write_bytes(before)
    assert "model_hub_token: is a secret in plain text" in text
    assert "hub-token-in-the-open" not in text


def test_a_busy_azure_is_said_to_be_busy(life: Life) -> None:
    life.faults(BUSY)
    life.edit(lambda settings: settings["tags"].update(owner="somebody-else"))
    text, _ = life.fail(life.sandbox.stack.up)
    assert "busy" in explained(life, text).what
    life.faults(None)
    life.up()
    assert life.preview().touched() == {}


def test_after_destroy_the_soft_deleted_names_are_explained_with_the_command(life: Life) -> None:
    life.destroy()
    assert life.azure.resources == {}
    text, _ = life.fail(life.sandbox.stack.up)
    assert explained(life, text).next_step.startswith("Run `infra purge -s dev`")


def test_another_salt_gives_free_names_and_the_stack_comes_up_again(life: Life) -> None:
    life.edit(lambda settings: settings.update(name_salt="again"))
    life.up()
    assert len(life.azure.of_type("compute:VirtualMachine")) == 2
    assert life.preview().touched() == {}
