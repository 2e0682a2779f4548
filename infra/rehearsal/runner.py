"""Runs the steps one after the other and tells an observer what happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pulumi import automation
from pulumi.automation import events

from infra.operations import failures
from infra.rehearsal.record import Record, name_of, summary
from infra.rehearsal.sandbox import Sandbox
from infra.rehearsal.steps import Step
from plan.azure.model import AzurePlan


@dataclass(frozen=True)
class StepResult:
    """How a step went. `problem` is None when everything was as expected; `details` holds the engine's own words."""

    step: Step
    seconds: float
    record: Record
    problem: str | None
    next_step: str | None = None
    details: str = ""
    said: str = ""

    @property
    def outcome(self) -> str:
        """`61 created`, or `refused, as it should be`."""
        if self.problem is None and self.step.refused is not None:
            return "refused, as it should be"
        if self.said:
            return self.said
        return summary(self.record.count())

    def as_json(self) -> dict[str, Any]:
        """The result as `infra rehearse --json` prints it."""
        return {
            "step": self.step.name,
            "command": self.step.command,
            "seconds": round(self.seconds, 2),
            "changes": {change.value: count for change, count in sorted(self.record.count().items())},
            "touched": {name: change.value for name, change in self.record.touched().items()},
            "said": self.said,
            "problem": self.problem,
            "next_step": self.next_step,
        }


class Observer(Protocol):
    """Shows progress; `Screen` is the one for terminals."""

    def started(self, step: Step) -> None:
        """Called before a step runs."""

    def progressed(self, step: Step, finished: int, name: str) -> None:
        """The engine finished another resource."""

    def ended(self, result: StepResult) -> None:
        """Called after a step, whether it failed or not."""


@dataclass
class Rehearsal:
    """The results so far, and the resources as they stood after everything was created."""

    results: list[StepResult] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        """Whether every step went as expected."""
        return all(result.problem is None for result in self.results)


def run(plan: AzurePlan, sandbox: Sandbox, steps: tuple[Step, ...], observer: Observer) -> Rehearsal:
    """Run steps until one goes wrong."""
    rehearsal = Rehearsal()
    for step in steps:
        result = _run_step(step, plan, sandbox, observer)
        rehearsal.results.append(result)
        if not rehearsal.resources and result.problem is None:
            rehearsal.resources = sandbox.resources()
            rehearsal.outputs = {
                name: "(secret)" if output.secret else output.value for name, output in sandbox.stack.outputs().items()
            }
        observer.ended(result)
        if result.problem is not None:
            break
    return rehearsal


def _run_step(step: Step, plan: AzurePlan, sandbox: Sandbox, observer: Observer) -> StepResult:
    record = Record()
    observer.started(step)
    begin = time.monotonic()
    failure = _call(step, sandbox, _listener(step, record, observer))
    seconds = time.monotonic() - begin
    if failure is None:
        problem = "this should have been refused, but it went through" if step.refused else step.check(record, sandbox)
        return StepResult(step, seconds, record, problem, said=step.tell(sandbox) if step.tell else "")
    if step.refused and step.refused in failure.lower():
        return StepResult(step, seconds, record, step.check(record, sandbox))
    text = "\n".join([*record.diagnostics, failure])
    known = failures.explain(text, plan)
    what = known.what if known else _first_line(record.diagnostics) or "the engine failed"
    return StepResult(step, seconds, record, what, known.next_step if known else None, text)


def _call(step: Step, sandbox: Sandbox, on_event: Callable[[events.EngineEvent], None]) -> str | None:
    try:
        step.run(sandbox, on_event)
    except automation.CommandError as error:
        return str(error)
    return None


def _listener(step: Step, record: Record, observer: Observer) -> Callable[[events.EngineEvent], None]:
    def listen(event: events.EngineEvent) -> None:
        record.add(event)
        if event.res_outputs_event:
            observer.progressed(step, len(record.order), name_of(event.res_outputs_event.metadata.urn))

    return listen


def _first_line(diagnostics: list[str]) -> str:
    return diagnostics[0].splitlines()[0] if diagnostics else ""
