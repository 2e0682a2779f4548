"""What a stack's state says, read with the pinned Pulumi. Secrets are asked for by name only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from huddle.client import stack_outputs
from huddle.errors import Fault, InputError
from infra import engine
from plan import stack_file


class NoStackError(InputError):
    """The backend has no such stack, so no resource of it exists. Other failures do not say so."""


def with_secrets(stack: str) -> Mapping[str, Any]:
    """The outputs of the last `up`, keys among them: for a request, never for a screen.

    Raises:
        InputError: as `outputs`.
        infra.engine.EngineUnavailableError: there is no Pulumi engine.
    """
    return outputs(stack, secrets=True)


def outputs(stack: str, *, secrets: bool = False) -> Mapping[str, Any]:
    """The outputs of the last `up`.

    Raises:
        NoStackError: the backend has no such stack.
        InputError: the state can't be read.
        infra.engine.EngineUnavailableError: there is no Pulumi engine.
    """
    found = engine.locate()
    file = f"stacks/Pulumi.{stack}.yaml"
    try:
        return stack_outputs.read(
            stack, found.environment(), pulumi=str(found.pulumi), cwd=stack_file.ROOT, secrets=secrets
        )
    except stack_outputs.StackOutputsError as error:
        if error.no_stack:
            said = f"{error.reason} where Pulumi is logged in; run `make up STACK={stack}` first"
            raise NoStackError(Fault(file, "", said)) from None
        step = "log in where its state is (`make pulumi ARGS='login …'`)"
        said = f"Pulumi can't read the stack's state: {error.reason}; {step}" if error.reason else str(error)
        raise InputError(Fault(file, "", said)) from None


def gateway_id(known: Mapping[str, Any], stack: str) -> str:
    """The gateway's ARM id.

    Raises:
        InputError: the stack was never brought up.
    """
    found = known.get("gateway_id")
    if not isinstance(found, str):
        raise InputError(
            Fault(f"stacks/Pulumi.{stack}.yaml", "", f"has no gateway yet; run `make up STACK={stack}` first")
        )
    return found
