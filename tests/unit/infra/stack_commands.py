"""The commands of `infra` that read a stack, found in its command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

NEEDED = {"usage": ("--tokens", __file__), "rotate": ("web/app",)}
"""What a command needs besides the stack; none gets so far that it counts."""


def of(app: typer.Typer) -> Iterator[tuple[str, ...]]:
    """The words of each command that has `--stack`."""
    yield from _below(typer.main.get_command(app))


def _below(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, *words, name)
    if any("--stack" in parameter.opts for parameter in command.params):
        yield (*words, *NEEDED.get(command.name or "", ()))
