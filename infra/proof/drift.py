"""What a preview after a refresh would change, asked of the pinned Pulumi."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from huddle.errors import HuddleError
from infra import engine

_TIMEOUT_S = 1800.0
_QUIET = frozenset({"same", "read", "refresh"})


class PreviewError(HuddleError):
    """Pulumi gave no preview, as a sentence."""


def changed(stack: str) -> tuple[str, ...]:
    """The names of resources that a preview after a refresh would touch. The state stays as it is.

    Raises:
        PreviewError: Pulumi failed, or said what is no preview.
        infra.engine.EngineUnavailableError: there is no Pulumi engine.
    """
    try:
        done = engine.locate().ask("preview", "--refresh", "--json", "--stack", stack, timeout_s=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PreviewError(f"Pulumi gave no preview within {_TIMEOUT_S / 60:.0f} min") from None
    try:
        return touched(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        said = " ".join(done.stderr.split())[-300:]
        raise PreviewError(f"Pulumi gave no preview: {said or 'it said nothing'}") from None


def touched(preview: dict[str, Any]) -> tuple[str, ...]:
    """The last part of each URN whose step is more than `same`."""
    steps = [(str(step["op"]), str(step["urn"]).rpartition("::")[2]) for step in preview["steps"]]
    return tuple(sorted({name for op, name in steps if op not in _QUIET}))
