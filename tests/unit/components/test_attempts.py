"""Which attempt a run command is: another after a failure, the same else, and none is ever guessed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import pulumi
import pytest

from components import attempts
from components.attempts import LastRun, Parameter
from tests.unit.recording import run_program

CALL = "compute:getVirtualMachineRunCommandByVirtualMachine"


class ProviderError(grpc.RpcError):
    """An invoke that the provider refuses, as the engine passes it on."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self._said = said

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNKNOWN

    def details(self) -> str:
        return f"invocation of azure-native:{CALL} returned an error: {self._said}"


def asked(answer: Mapping[str, Any] | str, preview: bool = False) -> int:
    """The number that a program gets when Azure answers so, or refuses with that text."""
    numbers = []

    def answers(_: Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(answer, str):
            raise ProviderError(answer)
        return dict(answer)

    def program() -> None:
        numbers.append(attempts.number(attempts.last_run("group", "vm", "huddle-apply")))
        pulumi.export("went", "on")

    run_program(program, preview=preview, calls={CALL: answers})
    return numbers[0]


def known(attempt: str | None = "3", execution: str = "Succeeded", provisioning: str = "Succeeded") -> dict[str, Any]:
    parameters = [] if attempt is None else [{"name": "HUDDLE_ATTEMPT", "value": attempt}]
    return {
        "parameters": [{"name": "HUDDLE_SECRETS", "value": "7"}, *parameters],
        "instanceView": {"executionState": execution},
        "provisioningState": provisioning,
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (known(), 3),
        (known(execution="Failed", provisioning="Failed"), 4),
        (known(execution="TimedOut"), 4),
        (known(execution="Canceled"), 4),
        (known(execution="Running", provisioning="Failed"), 4),  # Azure stopped to wait; the script may still run
        (known(execution="Running", provisioning="Updating"), 3),  # somebody's `up` is on its way
        (known(execution="Pending", provisioning="Creating"), 3),
        (known(attempt=None), 1),  # of a release without attempts
        (known(attempt=None, execution="Failed"), 2),
        (known(attempt="many"), 1),
        ({}, 1),
    ],
)
def test_only_a_failure_counts_on(answer: dict[str, Any], expected: int, preview: bool) -> None:
    assert asked(answer, preview) == expected


@pytest.mark.parametrize(
    "said",
    [
        'Status=404 Code="ResourceNotFound" Message="The Resource … was not found."',
        'Status=404 Code="ResourceGroupNotFound" Message="Resource group \'x\' could not be found."',
        'Status=404 Code="ParentResourceNotFound" Message="… the parent resource … could not be found."',
        "GET https://management.azure.com/… RESPONSE 404: 404 Not Found ERROR CODE: NotFound",
    ],
)
def test_what_is_not_there_has_its_first_attempt_before_it(said: str, preview: bool) -> None:
    assert asked(said, preview) == attempts.FIRST


@pytest.mark.parametrize(
    "said",
    [
        'Status=403 Code="AuthorizationFailed" Message="… does not have authorization to perform action …/read …"',
        'Status=429 Code="TooManyRequests"',
        "no credentials: run `az login`",
    ],
)
def test_whoever_cannot_ask_is_told_and_nothing_is_guessed(said: str) -> None:
    with pytest.raises(Exception, match=f"invocation of azure-native:{CALL} returned an error") as caught:
        asked(said)
    assert said in str(caught.value)


def test_the_number_stays_after_a_success_and_grows_with_each_failure() -> None:
    """Equal inputs for the engine, equal settings for Azure: an `up` after a success changes nothing."""
    seen = [attempts.number(None)]
    for state in ("Failed", "Failed", "Succeeded", "Succeeded", "Failed"):
        last = LastRun({Parameter.ATTEMPT: str(seen[-1])}, frozenset({state}))
        seen.append(attempts.number(last))
    assert seen == [1, 2, 3, 3, 3, 4]
