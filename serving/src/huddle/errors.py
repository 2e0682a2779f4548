"""Errors that a person can act on: one sentence for each fault, an exit code, never a traceback.

`infra` and `huddle` each catch `HuddleError` in one place, print a line for each fault and end with its exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Any


@unique
class ExitCode(IntEnum):
    """What `huddle` and `infra` say to the program that started them."""

    OK = 0
    FAILED = 1  # the work began and did not succeed
    BAD_INPUT = 2  # refused before anything was created or started


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: where it stands, what it is, and what would be allowed.

    `file` may end with `:LINE`. `key` is the dotted path in it, empty when the whole file is at fault. Both are empty
    for what stands in no file.
    """

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


class HuddleError(Exception):
    """Something that a person can fix, in plain words. A plain sentence is a fault without a place."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, *faults: Fault | str) -> None:
        self.faults = tuple(fault if isinstance(fault, Fault) else Fault("", "", fault) for fault in faults)
        super().__init__("\n".join(self.sentences))

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to show, a line for each fault."""
        return tuple(map(str, self.faults))


class InputError(HuddleError):
    """Wrong input, found before anything was created or started."""

    exit_code = ExitCode.BAD_INPUT


def together(steps: Iterable[Callable[[], Any]]) -> list[Any]:
    """Take every step that may refuse its input, so that a person hears of all faults at once; what each returned.

    Raises:
        InputError: with the faults of all steps, each once.
    """
    made: list[Any] = []
    faults: dict[Fault, None] = {}
    for step in steps:
        try:
            made.append(step())
        except InputError as error:
            faults |= dict.fromkeys(error.faults)
    if faults:
        raise InputError(*faults)
    return made
