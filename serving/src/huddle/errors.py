"""Errors that a person can act on: one sentence, an exit code, never a traceback."""

from enum import IntEnum, unique


@unique
class ExitCode(IntEnum):
    """What `huddle` says to the program that started it."""

    OK = 0
    FAILED = 1  # the work began and did not succeed
    BAD_INPUT = 2  # refused before anything was created or started


class HuddleError(Exception):
    """A refusal in plain words: what is wrong, where, and what is allowed. Subclasses may carry several sentences."""

    exit_code: ExitCode = ExitCode.BAD_INPUT

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences to show, one a line."""
        return (str(self),)
