"""Where an error leaves the operator's commands: one line for each fault, and its exit status."""

from __future__ import annotations

import sys

from huddle.errors import HuddleError


def say(error: HuddleError) -> int:
    """Tell each fault on a line of stderr; the exit status to end with."""
    for fault in error.faults:
        print(f"error: {fault}", file=sys.stderr)
    return error.exit_code
