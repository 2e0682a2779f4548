"""`infra rehearse`: puts sandbox, steps, screen and reports together."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from huddle.errors import Fault, InputError
from infra import graph, program
from infra.rehearsal.runner import Rehearsal
from infra.rehearsal.runner import run as run_steps
from infra.rehearsal.sandbox import Sandbox, open_sandbox
from infra.rehearsal.screen import Screen, show_outputs, show_summary
from infra.rehearsal.steps import steps_of
from infra.reports import resource_graph, timeline, tree_view
from plan import stack_file
from plan.azure.model import AzurePlan
from simulator.azure.faults import load as load_faults


def run(
    stack: str,
    directory: Path,
    *,
    console: Console,
    root: Path = stack_file.ROOT,
    faults: Path | None = None,
    keep: bool = False,
    as_json: bool = False,
) -> bool:
    """Rehearse a stack of `root`'s stacks in `directory`; True when every step went as expected.

    The directory is removed after a success unless `keep`, and always kept after a failure.

    Raises:
        InputError: the stack file is wrong; nothing was started.
        EngineUnavailableError: there is no Pulumi engine.
    """
    plan = program.load_azure_plan(stack, root, rehearsed=True)
    injected = read_faults(faults) if faults is not None else None
    expected = sum(resource.custom for resource in graph.registered(plan))
    try:
        sandbox = _open(plan, directory, root, injected)
    except InputError:
        if not keep:
            shutil.rmtree(directory, ignore_errors=True)
        raise
    screen = Screen(console, plan, expected)  # says that it begins, so after all that may be refused
    for warning in program.warnings(stack, root, rehearsed=True):
        console.print(f"warning: {warning}", style="yellow", markup=False, highlight=False)
    rehearsal = run_steps(plan, sandbox, steps_of(plan), screen)
    if rehearsal.resources and not as_json:
        _report(console, plan, rehearsal)
    kept = keep or not rehearsal.succeeded
    show_summary(console, plan, rehearsal, str(directory) if kept else None, own=root == stack_file.ROOT)
    if as_json:
        print(json.dumps(_as_json(plan, rehearsal), indent=2))  # noqa: T201 - the command's product
    if not kept:
        shutil.rmtree(directory, ignore_errors=True)
    return rehearsal.succeeded


def read_faults(path: Path) -> str:
    """The text of a fault file.

    Raises:
        InputError: it can't be read, is empty, or is no fault file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(Fault(str(path), "", f"can't be read: {reason}")) from None
    if not text.strip():
        raise InputError(Fault(str(path), "", "is empty; the format is in simulator/README.md"))
    load_faults(f"{text}\n", called=str(path))
    return text


def _open(plan: AzurePlan, directory: Path, root: Path, injected: str | None) -> Sandbox:
    try:
        sandbox = open_sandbox(plan.stack, directory, root=root)
    except OSError as error:
        raise InputError(Fault(str(directory), "", f"can't be made ({error.strerror}); name a new directory")) from None
    if injected is not None:
        sandbox.set_faults(plan, injected)
    return sandbox


def _report(console: Console, plan: AzurePlan, rehearsal: Rehearsal) -> None:
    resources = resource_graph.from_checkpoint(rehearsal.resources)
    console.print()
    console.print(tree_view.render(resources, plan.stack))
    console.print()
    console.print(timeline.render(_timeline(plan, resources), width=console.width))
    show_outputs(console, rehearsal.outputs)


def _timeline(plan: AzurePlan, resources: Sequence[resource_graph.Registered]) -> timeline.Timeline:
    return timeline.critical_path(resources, variants=timeline.variants_of(plan))


def _as_json(plan: AzurePlan, rehearsal: Rehearsal) -> dict[str, object]:
    resources = resource_graph.from_checkpoint(rehearsal.resources)
    return {
        "simulated": True,
        "stack": plan.stack,
        "succeeded": rehearsal.succeeded,
        "steps": [result.as_json() for result in rehearsal.results],
        "resources": len([resource for resource in resources if resource.custom]),
        "timeline": timeline.to_json(_timeline(plan, resources)),
        "outputs": rehearsal.outputs,
    }
