"""Running a Typer command line: wrong usage is a fault like any other, without Typer's boxes."""

import sys
from dataclasses import replace
from typing import Any, NoReturn

import typer
from pydantic import ValidationError
from typer.exceptions import TyperException

from huddle.errors import ExitCode, Fault, InputError
from huddle.findings import findings, sentence


def run(app: typer.Typer, program: str) -> NoReturn:
    """Run a command and end with its exit status; `program` is the name that people type.

    Raises:
        InputError: an unknown command or option, a missing argument, a wrong value.
        HuddleError: what the command raises.
    """
    try:
        code = app(standalone_mode=False, prog_name=program)
    except TyperException as error:
        if not error.format_message():  # no argument at all: the help has been shown
            sys.exit(error.exit_code)
        raise InputError(*_faults(error, program, _command(app))) from None
    except typer.Abort:
        typer.echo("Aborted.", err=True)
        sys.exit(ExitCode.FAILED)
    sys.exit(code)


def _command(app: typer.Typer) -> str:
    """The command that the command line begins with; an option without its value does not know it."""
    group: Any = typer.main.get_command(app)
    words: list[str] = []
    for word in sys.argv[1:]:
        if not hasattr(group, "get_command") or (inner := group.get_command(None, word)) is None:
            break
        group = inner
        words.append(word)
    return " ".join(words)


def _faults(error: Any, program: str, command: str) -> list[Fault]:
    """What is wrong, under the command's name. Values are checked by pydantic, so its findings get our words."""
    cause = error.__cause__
    if isinstance(cause, ValidationError):
        about, name = error.param.help or error.param.name, error.param.get_error_hint().replace("'", "")
        found = [replace(finding, description=about) for finding in findings(cause, None)]
        return [Fault(command, name, sentence(finding).rstrip(".")) for finding in found]
    text = error.format_message().rstrip(".").replace(". Did you mean", "; did you mean")
    joint = "" if text.endswith("?") else ";"
    helping = (
        f"{joint} `{' '.join(filter(None, (program, command, '--help')))}` shows what is allowed" if program else ""
    )
    return [Fault(command, "", f"{text[:1].lower()}{text[1:]}{helping}")]
