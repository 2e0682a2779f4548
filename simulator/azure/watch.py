"""What Azure Monitor does with a rule: look, fire, tell its action groups, clear. Over measurements of a test's own.

How often it must be quiet before an alert resolves is Azure's (docs/facts/azure.md#alerts-that-fired).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from simulator.azure import alarms
from simulator.azure.errors import SimulatorError
from simulator.azure.state.store import Resource, State
from simulator.kusto.run import Table, run

QUIET_CHECKS: Final = 3
"""Of a metric alert, and of a log alert that is evaluated every 5 to 15 minutes."""
_QUIET: Final = "quiet"
_DURATION: Final = re.compile(r"PT(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThan": lambda value, threshold: value > threshold,
    "LessThan": lambda value, threshold: value < threshold,
}


@dataclass(frozen=True)
class Measured:
    """What was measured: log rows by table; a metric's values by resource, name and time; events of the activity log.

    Rows and values have a time; what is older than a rule looks back is not seen.
    """

    tables: Mapping[str, Table] = field(default_factory=lambda: MappingProxyType({}))
    metrics: Mapping[tuple[str, str], Sequence[tuple[datetime, float]]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    events: Sequence[Mapping[str, str]] = ()


def check(state: State, rule: Resource, now: datetime, measured: Measured) -> None:
    """Evaluate a rule once, as Azure does every few minutes. Of what nothing was measured, nothing changes.

    Raises:
        SimulatorError: the rule asks for something that is not imitated.
    """
    if not rule.properties.get("enabled", True):
        return
    quiet: dict[str, int] = rule.notes.setdefault(_QUIET, {})
    for target, wrong in _LOOKS[rule.key](rule.properties, now, measured).items():
        quiet[target] = 0 if wrong else quiet.get(target, 0) + 1
        if wrong:
            alarms.fire(state, rule, target)
        elif quiet[target] >= QUIET_CHECKS and rule.properties.get("autoMitigate"):
            alarms.clear(rule, target)


def _log(rule: Mapping[str, Any], now: datetime, measured: Measured) -> dict[str, bool]:
    """Of the workspace: whether each condition's query has more rows than its threshold."""
    since = now - _span(rule["windowSize"])
    seen = {name: _recent(table, since, now) for name, table in measured.tables.items()}
    conditions = rule["criteria"]["allOf"]
    wrong = all(_holds(one, len(run(one["query"], seen)), "Count") for one in conditions)
    return dict.fromkeys(rule["scopes"], wrong)


def _recent(table: Table, since: datetime, now: datetime) -> Table:
    return Table(table.columns, [row for row in table.rows if since < row["TimeGenerated"] <= now])


def _metric(rule: Mapping[str, Any], now: datetime, measured: Measured) -> dict[str, bool]:
    """Of each VM by itself. One that is deallocated measures nothing."""
    since, found = now - _span(rule["windowSize"]), {}
    for target in rule["scopes"]:
        for one in rule["criteria"]["allOf"]:
            series = measured.metrics.get((target, one["metricName"]), ())
            values = [value for at, value in series if since < at <= now]
            if values:
                found[target] = _holds(one, sum(values) / len(values), "Average")
    return found


def _holds(condition: Mapping[str, Any], value: float, aggregation: str) -> bool:
    compare = _COMPARE.get(condition["operator"])
    if condition["timeAggregation"] != aggregation or compare is None:
        raise SimulatorError(f"{condition['timeAggregation']} {condition['operator']} is not imitated")
    return compare(value, condition["threshold"])


def _activity(rule: Mapping[str, Any], _: datetime, measured: Measured) -> dict[str, bool]:
    """Of the scopes with an event that has all the fields; words without case, as Azure compares them."""
    wanted = {one["field"]: one["equals"].lower() for one in rule["condition"]["allOf"]}
    found = [
        event["resourceId"].lower()
        for event in measured.events
        if all(event.get(name, "").lower() == value for name, value in wanted.items())
    ]
    return {scope: any(f"{each}/".startswith(f"{scope.lower()}/") for each in found) for scope in rule["scopes"]}


def _span(duration: str) -> timedelta:
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise SimulatorError(f"the duration {duration} is not imitated")
    return timedelta(**{unit: int(value) for unit, value in found.groupdict(default="0").items()})


_LOOKS: Final = {
    "monitor:ActivityLogAlert": _activity,
    "monitor:MetricAlert": _metric,
    "monitor:ScheduledQueryRule": _log,
}
