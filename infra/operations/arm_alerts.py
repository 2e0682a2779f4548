"""Which alarms fire, as Azure Monitor lists them, and which are off (docs/facts/azure.md#alerts-that-fired).

Only reads.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.operations import api_versions
from infra.operations.arm import Arm, NotThereError

FIRED, CLOSED = "Fired", "Closed"
LONGEST = "30d"
"""How far back Azure's list goes; by default it goes back a day."""


@dataclass(frozen=True)
class Firing:
    """A rule whose condition holds, for one of the resources that it watches. `severity` is 0 (worst) to 4."""

    rule: str
    severity: int
    since: str
    target: str
    description: str


def firing(arm: Arm, subscription: str, rules: Container[str]) -> Iterator[Firing]:
    """Alarms of these rules (names) that fire, and that nobody has closed. A list names a rule by its id or its name.

    Raises:
        ArmError: Azure refused or did not answer.
    """
    path = f"/subscriptions/{subscription}/providers/Microsoft.AlertsManagement/alerts"
    wanted = {"monitorCondition": FIRED, "timeRange": LONGEST}
    for item in arm.list(path, api_versions.ALERTS, plain=wanted):
        said: Mapping[str, Any] = (item.get("properties") or {}).get("essentials") or {}
        rule = str(said.get("alertRule") or "").rpartition("/")[2].lower()
        if rule in rules and said.get("monitorCondition") == FIRED and said.get("alertState") != CLOSED:
            yield Firing(
                rule=rule,
                severity=int(str(said.get("severity") or "Sev4").removeprefix("Sev")),
                since=str(said.get("startDateTime") or ""),
                target=str(said.get("targetResource") or "").rpartition("/")[2],
                description=str(said.get("description") or ""),
            )


def switched_off(arm: Arm, group: str, rules: Container[str]) -> Iterator[str]:
    """Log alarms of these rules (names) that are off: Azure does it itself (docs/facts/azure.md#queries-of-alerts).

    Raises:
        ArmError: Azure refused or did not answer.
    """
    path = f"{group}/providers/Microsoft.Insights/scheduledQueryRules"
    try:
        for item in arm.list(path, api_versions.LOG_ALERTS):
            name = str(item.get("name") or "").lower()
            if name in rules and (item.get("properties") or {}).get("enabled") is False:
                yield name
    except NotThereError:  # no group, no rule
        return
