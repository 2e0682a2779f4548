"""`huddle`: the node's and the client's command line.

To add a command, give its package a `cli.py` with `app = typer.Typer(...)` and `COMMANDS` a line. Commands are imported
when they are called, so that a client does not pay for the wrapper. A `HuddleError` becomes its sentence and exit code
here and nowhere else.
"""

import importlib
import importlib.util
import json
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from huddle import __version__, command_line
from huddle.errors import HuddleError

COMMANDS = {
    "models": "huddle.models.cli",
    "plan": "huddle.planner.cli",
    "launch": "huddle.launch.cli",
    "tune": "huddle.tune.cli",
    "wrapper": "huddle.wrapper.cli",
    "probe": "huddle.probe.cli",
    "status": "huddle.status.cli",
    "chat": "huddle.client.chat",
    "ask": "huddle.client.ask",
    "bench": "huddle.client.bench",
    "batch": "huddle.client.batch",
    "local": "huddle.local.cli",
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported by name at the time they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands whose modules are installed, in the table's order."""
        return [*(name for name, module in COMMANDS.items() if _installed(module)), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import one command."""
        module = COMMANDS.get(cmd_name)
        if module is None or not _installed(module):
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(importlib.import_module(module).app)
        command.name = cmd_name
        return command


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


app = typer.Typer(cls=LazyGroup, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"huddle {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    """Serve and use language models: plan, launch and check them on this node, talk to them from anywhere."""


def main() -> None:
    """Run the command line: what a person can fix is one sentence on stderr (and JSON on stdout with --json)."""
    try:
        command_line.run(app, "huddle")
    except HuddleError as error:
        for sentence in error.sentences:
            typer.echo(f"huddle: {sentence}", err=True)
        if "--json" in sys.argv:
            typer.echo(json.dumps({"ok": False, "errors": list(error.sentences)}))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)  # the reader left, as after SIGPIPE
