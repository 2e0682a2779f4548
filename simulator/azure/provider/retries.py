"""What the real provider tries again before it gives up (docs/facts/pulumi.md#what-the-provider-tries-again)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from simulator.azure.errors import ArmError, PlainError

WAITS_S: Final = (20.0, 60.0, 120.0)
_Result = TypeVar("_Result")
_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})


def passes_by_itself(error: ArmError) -> bool:
    """Whether the provider asks again after this answer. Any other 409 is final, and so is what fails afterwards."""
    return error.status in _STATUSES or (error.status == 409 and error.code == "AnotherOperationInProgress")


def persistently(operation: Callable[[], _Result], wait: Callable[[float], bool]) -> _Result:
    """Run an operation, and run it again while its refusal passes by itself.

    `wait` waits so many of Azure's seconds and says whether it was interrupted.

    Raises:
        ArmError: the last refusal.
        PlainError: interrupted.
    """
    for pause_s in WAITS_S:
        try:
            return operation()
        except ArmError as error:
            if not passes_by_itself(error):
                raise
            if error.retry_after_s > WAITS_S[-1]:
                raise
            if wait(error.retry_after_s or pause_s):
                raise PlainError("operation cancelled") from error
    return operation()
