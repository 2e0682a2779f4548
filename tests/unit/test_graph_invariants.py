"""Every stack's whole graph, as registered in preview and in update, against what must always hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from infra import program
from plan import stack_file
from plan.azure.model import AzurePlan
from simulator.azure.contracts import shapes
from tests.unit import invariants
from tests.unit.recording import AZURE, Recording, assert_no_canary_outside_secrets, run_program, stack_config

TESTS = stack_file.ROOT / "tests"
ROOTS = {**dict.fromkeys(stack_file.names(), stack_file.ROOT), **dict.fromkeys(stack_file.names(TESTS), TESTS)}
"""The stacks that come with the project, and one for each tier and landing zone of the gateway."""
OVER_RECORDING = (
    invariants.fixed_names_replace_delete_first,
    invariants.children_stand_in_one_place,
    invariants.nodes_have_no_public_address,
    invariants.security_groups_end_with_a_deny,
    invariants.nodes_that_share_a_disk_come_one_by_one,
    invariants.gateway_entities_are_written_one_by_one,
    invariants.components_say_what_they_made,
    invariants.resources_belong_to_a_component,
    invariants.bodies_are_as_azure_wants_them,
)
OVER_RECORDING_AND_PLAN = (
    invariants.what_holds_data_is_protected,
    invariants.security_rules_match_the_port_table,
    invariants.everything_carries_the_tags,
    invariants.deletions_are_left_to_azure,
)


@cache
def recording_of(stack: str, preview: bool) -> Recording:
    return run_program(program.main, stack, preview, config=stack_config(stack, ROOTS[stack]))


@cache
def recording_with_files() -> Recording:
    """The dev stack with the other kind of model store."""
    return run_program(
        program.main, config={**stack_config("dev"), "h100-inference:model_store": '{"kind": "azure-files"}'}
    )


@pytest.fixture(params=sorted(ROOTS))
def plan(request: pytest.FixtureRequest) -> AzurePlan:
    return program.load_plan(request.param, ROOTS[request.param])


@pytest.fixture
def recording(plan: AzurePlan, preview: bool) -> Recording:
    return recording_of(plan.stack, preview)


@pytest.mark.parametrize("holds", OVER_RECORDING, ids=lambda holds: holds.__name__)
def test_invariant(holds: Callable[[Recording], Iterator[str]], recording: Recording) -> None:
    assert list(holds(recording)) == []


@pytest.mark.parametrize("holds", OVER_RECORDING_AND_PLAN, ids=lambda holds: holds.__name__)
def test_invariant_of_the_plan(
    holds: Callable[[Recording, AzurePlan], Iterator[str]], recording: Recording, plan: AzurePlan
) -> None:
    assert list(holds(recording, plan)) == []


def test_a_group_has_the_time_that_a_gateway_in_it_takes_to_go(recording: Recording) -> None:
    assert recording.one("resources:ResourceGroup").timeouts["delete"] == "3h"


def test_no_secret_leaves_its_mark(recording: Recording) -> None:
    assert_no_canary_outside_secrets(recording)


def test_preview_and_update_register_the_same_resources(plan: AzurePlan) -> None:
    previewed, updated = (recording_of(plan.stack, preview) for preview in (True, False))
    assert sorted(resource.urn for resource in previewed.resources) == sorted(
        resource.urn for resource in updated.resources
    )


def test_a_store_of_files_is_as_azure_wants_it() -> None:
    assert list(invariants.bodies_are_as_azure_wants_them(recording_with_files())) == []


def test_every_contract_is_of_a_type_that_a_stack_makes() -> None:
    recordings = [recording_with_files(), *(recording_of(stack, False) for stack in ROOTS)]
    made = {one.type for recording in recordings for one in recording.resources if one.type.startswith(AZURE)}
    assert {kind.removeprefix(AZURE) for kind in made} == shapes.arm_types().keys() | invariants.WITHOUT_CONTRACT.keys()
