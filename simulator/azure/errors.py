"""What can go wrong in the simulated cloud, in Azure's own vocabulary."""

from __future__ import annotations

from typing import Any

from huddle.errors import InputError

SIMULATED = "[simulated]"


class SimulatorError(InputError):
    """The simulator itself was given something wrong: a fault file, a state file."""


class ArmError(Exception):
    """A refusal of the simulated Azure Resource Manager.

    The text has the shape the azure-native provider prints (`Status=… Code="…" Message="…"`), so that programs and
    people who read error codes see here what they would see there.
    """

    def __init__(self, status: int, code: str, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s  # its Retry-After header; 0: it has none

    def __str__(self) -> str:
        return f'Status={self.status} Code="{self.code}" Message="{self.message}"'


class PlainError(Exception):
    """A refusal by the provider itself, before or without an HTTP answer (no code)."""


class InitFailedError(Exception):
    """The resource exists but its long-running operation failed: the engine keeps it and updates it next time."""

    def __init__(self, resource_id: str, reason: str, outputs: dict[str, Any]) -> None:
        super().__init__(reason)
        self.resource_id = resource_id
        self.reason = reason
        self.outputs = outputs


def not_found(resource_id: str) -> ArmError:
    """ARM's answer for a resource that is not there."""
    return ArmError(404, "ResourceNotFound", f"The Resource '{resource_id}' was not found.")


def bad_request(code: str, message: str) -> ArmError:
    """HTTP 400 with a code."""
    return ArmError(400, code, message)


def conflict(code: str, message: str) -> ArmError:
    """HTTP 409 with a code."""
    return ArmError(409, code, message)
