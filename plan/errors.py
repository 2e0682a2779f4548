"""The one exception for input that a person can correct."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One wrong input: where it stands, what it is, and what would be allowed.

    `key` is the dotted path in the stack file; empty when the whole file is at fault.
    """

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return f"{where}: {self.message}"


class InputError(Exception):
    """Wrong input. The command line prints each fault on one line and exits with 2, before anything is created."""

    def __init__(self, *faults: Fault) -> None:
        self.faults = faults
        super().__init__("\n".join(str(fault) for fault in faults))
