"""The gateway's policies for people, scripts and files: exactly as they are sent to API Management."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax

from gateway_policies.extra_apis import Rendered, rendered
from huddle.errors import Fault, InputError
from plan.azure.model import AzurePlan


def of(plan: AzurePlan) -> tuple[Rendered, ...]:
    """Every policy of a plan's gateway."""
    return rendered(plan.gateway)


def to_json(policies: tuple[Rendered, ...]) -> dict[str, str]:
    """The policies' XML by scope, as `infra policies --json` prints it."""
    return {policy.scope: policy.text for policy in policies}


def show(policies: tuple[Rendered, ...], console: Console) -> None:
    """Each policy under its scope; coloured on a terminal, and plain to the letter anywhere else."""
    for policy in policies:
        if console.is_terminal:
            console.print(Rule(policy.scope, align="left"))
            console.print(Syntax(policy.text, "xml", word_wrap=True, background_color="default"))
        else:
            console.file.write(f"<!-- {policy.scope} -->\n{policy.text}\n\n")


def write(policies: tuple[Rendered, ...], directory: Path) -> Iterator[Path]:
    """A file for each policy, named after its scope.

    Raises:
        InputError: the directory is there already and holds something, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InputError(Fault(str(directory), "", "is not empty; name a new directory"))
        for policy in policies:
            path = directory / f"{policy.scope.replace('/', '-')}.xml"
            path.write_text(f"{policy.text}\n", encoding="utf-8")
            yield path
    except OSError as error:
        reason = f"can't be written ({error.strerror}); name a new directory"
        raise InputError(Fault(str(directory), "", reason)) from None
