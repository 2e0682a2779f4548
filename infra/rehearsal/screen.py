"""How a rehearsal looks on a terminal, and as plain lines elsewhere."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from infra.rehearsal.runner import Rehearsal, StepResult
from infra.rehearsal.steps import Step
from plan.azure.model import AzurePlan

WIDE = 110
"""Columns from which on the command of each step is shown too."""
SIMULATED = "simulated Azure: nothing is created, nothing is paid"


class Screen:
    """Shows steps as they run. Off a terminal, one line per finished step."""

    def __init__(self, console: Console, plan: AzurePlan, expected_resources: int) -> None:
        self.console = console
        self.expected = expected_resources
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        console.print(Text.assemble("Rehearsing ", (plan.stack, "bold"), " on a ", (SIMULATED, "yellow")))

    def started(self, step: Step) -> None:
        """Open a progress line for this step."""
        if not self.console.is_terminal:
            return
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>3.0f}  {task.fields[name]}", style="dim"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._task = self._progress.add_task(f"{step.title:<36}", total=self.expected, name="starting the engine")
        self._progress.start()

    def progressed(self, _: Step, finished: int, name: str) -> None:
        """Move the bar to the number of finished resources."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=finished, name=name[:48])

    def ended(self, result: StepResult) -> None:
        """Close the progress line and say how it went."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        good = result.problem is None
        line = Text.assemble(
            ("✓ " if good else "✗ ", "green" if good else "red"),
            f"{result.step.title:<36}",
            (f"{result.outcome:<25}", "bold"),
            (f"{result.seconds:5.1f} s", "dim"),
        )
        if self.console.width >= WIDE:
            line.append(f"   {result.step.command}", style="dim")
        self.console.print(line)
        if not good:
            self.console.print(f"  {result.problem}", style="red", highlight=False)
            if result.next_step:
                self.console.print(f"  Next: {result.next_step}", highlight=False)
            elif result.details:
                self.console.print(result.details[-2000:], style="dim", highlight=False, markup=False)


def show_outputs(console: Console, outputs: dict[str, Any]) -> None:
    """The stack's outputs as the user will see them."""
    table = Table(
        box=None, show_header=False, padding=(0, 2, 0, 0), title="Stack outputs (simulated)", title_justify="left"
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in sorted(outputs.items()):
        text = "\n".join(f"{key}: {item}" for key, item in value.items()) if isinstance(value, dict) else str(value)
        table.add_row(name, escape(text))
    console.print(table)


def show_summary(console: Console, plan: AzurePlan, rehearsal: Rehearsal, kept_in: str | None, *, own: bool) -> None:
    """The last words. `own`: whether the stack's file is where `make up` looks for it."""
    seconds = sum(result.seconds for result in rehearsal.results)
    if rehearsal.succeeded:
        text = (
            f"[green]The whole life of [bold]{plan.stack}[/bold] went as expected[/green] in {seconds:.0f} s "
            f"({len(rehearsal.results)} steps) on a {SIMULATED}.\n"
            f"With Azure credentials, the same program is{_where(plan, own=own)}: "
            f"[bold]make up STACK={plan.stack}[/bold]"
        )
    else:
        failed = rehearsal.results[-1]
        text = f"[red]Step '{failed.step.title}' of {plan.stack} did not go as expected[/red] (simulated Azure)."
        if kept_in:
            text += f"\nEverything is kept in {escape(kept_in)} for a closer look."
    console.print(Panel(text, expand=False))


def _where(plan: AzurePlan, *, own: bool) -> str:
    return "" if own else f", once Pulumi.{plan.stack}.yaml is copied to stacks/"
