"""Where an engine came from, and what to say when there is none."""

from enum import StrEnum, unique


@unique
class Origin(StrEnum):
    """How the Pulumi CLI in use was obtained, in the order in which the ways are tried."""

    PATH = "path"
    RELEASE = "release"
    GO_MODULES = "go-modules"


class EngineUnavailableError(RuntimeError):
    """No Pulumi CLI could be had; the text says in one sentence what was tried and what to do."""
