"""Alerts of the simulated Azure Monitor: one that fires or clears is kept with its rule, and its action groups with it.

Nothing is measured here. Whoever knows that a condition holds (a test, a person with `portal`) says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from simulator.azure.errors import SimulatorError
from simulator.azure.state.redaction import derived
from simulator.azure.state.store import Resource, State

RULES: Final = ("monitor:ActivityLogAlert", "monitor:MetricAlert", "monitor:ScheduledQueryRule")
STATELESS: Final = frozenset({"monitor:ActivityLogAlert"})
"""They fire for each event and never resolve (docs/facts/azure.md#alerts-that-fired)."""
_NOTE: Final = "alerts"


def fire(state: State, rule: Resource, target: str, of: str = "") -> None:
    """The rule's condition holds for a resource; `of` which values of its dimensions, where it splits by some.

    A rule with a state fires once for each, until its condition clears.
    """
    if rule.key not in STATELESS and any((one["target"], one["of"]) == (target, of) for one in _fired(rule)):
        return
    alerts = rule.notes.setdefault(_NOTE, [])
    name = str(uuid.UUID(derived(state.salt, rule.id, target, str(len(alerts)))))
    alerts.append({"name": name, "target": target, "of": of, "since": _now(), "resolved": ""})


def clear(rule: Resource, target: str, of: str = "") -> None:
    """The condition holds no more."""
    if rule.key in STATELESS:
        return
    for one in _fired(rule):
        if (one["target"], one["of"]) == (target, of):
            one["resolved"] = _now()


def rule(state: State, name: str) -> Resource:
    """A live rule by its name.

    Raises:
        SimulatorError: there is none.
    """
    rules = state.of_type(*RULES)
    found = next((one for one in rules if one.name.lower() == name.lower()), None)
    if found is None:
        names = ", ".join(sorted(one.name for one in rules)) or "none"
        raise SimulatorError(f"there is no alert rule '{name}'; there are: {names}")
    return found


def listed(state: State, filters: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Every alert as Azure's list has it, of one `monitorCondition` if that is asked for."""
    for each in state.of_type(*RULES):
        for one in each.notes.get(_NOTE, ()):
            condition = "Resolved" if one["resolved"] else "Fired"
            if filters.get("monitorCondition", condition) == condition:
                yield _shown(each, one, condition)


def told(each: Resource) -> list[str]:
    """The action groups that a rule tells, by their ids."""
    actions = each.properties.get("actions") or {}
    if isinstance(actions, list):  # a metric alert's
        return [str(one["actionGroupId"]) for one in actions]
    groups = actions.get("actionGroups") or ()
    return [str(one["actionGroupId"]) if isinstance(one, Mapping) else str(one) for one in groups]


def _fired(each: Resource) -> list[dict[str, str]]:
    return [one for one in each.notes.get(_NOTE, ()) if not one["resolved"]]


def _shown(each: Resource, one: Mapping[str, str], condition: str) -> dict[str, Any]:
    subscription = "/".join(each.id.split("/")[:3])
    essentials = {
        "severity": f"Sev{each.properties.get('severity', 4):.0f}",
        "alertState": "New",
        "monitorCondition": condition,
        "targetResource": one["target"],
        "alertRule": each.id,
        "startDateTime": one["since"],
        "description": str(each.properties.get("description") or ""),
        **({"monitorConditionResolvedDateTime": one["resolved"]} if one["resolved"] else {}),
    }
    return {
        "id": f"{subscription}/providers/Microsoft.AlertsManagement/alerts/{one['name']}",
        "name": one["name"],
        "type": "Microsoft.AlertsManagement/alerts",
        "properties": {"essentials": essentials},
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
