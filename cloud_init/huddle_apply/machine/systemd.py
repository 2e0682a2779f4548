"""systemd, through systemctl and journalctl."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from . import commands

_QUICK_S = 60.0
STOP_S = 900.0
"""Above the longest TimeoutStopSec of our units: a stop drains."""


def daemon_reload() -> None:
    """Make systemd read all unit files again."""
    commands.run(["systemctl", "daemon-reload"], deadline_s=_QUICK_S)


def enable(units: Sequence[str]) -> None:
    """Start them at every boot. What already is, is left alone: systemd would reload all its unit files for it."""
    said = (commands.output(["systemctl", "is-enabled", *units], deadline_s=_QUICK_S) or "").split()
    known = zip(units, said, strict=True) if len(said) == len(units) else ((unit, "") for unit in units)
    missing = [unit for unit, state in known if state != "enabled"]
    if missing:
        commands.run(["systemctl", "--quiet", "enable", *missing], deadline_s=_QUICK_S)


def disable(units: Sequence[str]) -> None:
    """Start them no more; a unit file that is gone already is no problem."""
    if units:
        commands.succeeds(["systemctl", "--quiet", "disable", *units], deadline_s=_QUICK_S)


def stop(units: Sequence[str]) -> None:
    """Stop one after the other, waiting for each to drain; engines of one template in a row go together."""
    for _, alike in groupby(units, key=lambda unit: unit.partition("@")[0]):
        commands.run(["systemctl", "stop", *alike], deadline_s=STOP_S)


def start(units: Sequence[str]) -> None:
    """Start; systemd keeps the order of the units' own dependencies. Their readiness is checked elsewhere."""
    if units:
        commands.succeeds(["systemctl", "reset-failed", *units], deadline_s=_QUICK_S)
        commands.run(["systemctl", "start", "--no-block", *units], deadline_s=_QUICK_S)


def reload(units: Iterable[str]) -> None:
    """Let running services read their configuration again."""
    for unit in units:
        commands.run(["systemctl", "reload", unit], deadline_s=_QUICK_S)


@dataclass(frozen=True)
class UnitState:
    """`active`: active, activating, inactive, failed ...; `restarts`: how often systemd did it by itself."""

    active: str
    restarts: int


def states(units: Sequence[str]) -> dict[str, UnitState]:
    """How units are, all in one question. A unit that systemd does not know is inactive."""
    if not units:
        return {}
    command = ["systemctl", "show", "--property=Id,ActiveState,NRestarts", *units]
    blocks = (commands.output(command, deadline_s=_QUICK_S) or "").strip().split("\n\n")
    found = {}
    for block in blocks:
        facts = dict(line.partition("=")[::2] for line in block.splitlines())
        restarts = facts.get("NRestarts", "")
        found[facts.get("Id", "")] = UnitState(
            facts.get("ActiveState", "unknown"), int(restarts) if restarts.isdigit() else 0
        )
    return {unit: found.get(unit, UnitState("unknown", 0)) for unit in units}


def log_of(unit: str) -> str:
    """The end of a unit's journal."""
    lines = str(commands.LOG_LINES)
    command = ["journalctl", "--unit", unit, "--lines", lines, "--output", "cat", "--no-pager"]
    return commands.tail(commands.output(command, deadline_s=_QUICK_S) or "")


def apply_sysctl() -> None:
    """Make the kernel take the settings of /etc/sysctl.d."""
    commands.run(["sysctl", "--quiet", "--system"], deadline_s=_QUICK_S)
