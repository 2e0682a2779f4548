"""What Azure Monitor does with a rule: look, fire, tell its action groups, clear. Over measurements of a test's own.

How often it must be quiet before an alert resolves is Azure's (docs/facts/azure.md#alerts-that-fired).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from simulator.azure import alarms
from simulator.azure.errors import SimulatorError
from simulator.azure.state.store import Resource, State
from simulator.kusto.run import Table, run

QUIET_CHECKS: Final = 3
"""Of a metric alert, and of a log alert that is evaluated every 5 to 15 minutes."""
_QUIET: Final = "quiet"
_BETWEEN: Final = " of "
_LOG_RULE: Final = "monitor:ScheduledQueryRule"
_DURATION: Final = re.compile(r"PT(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?")
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThan": lambda value, threshold: value > threshold,
    "LessThan": lambda value, threshold: value < threshold,
}


class Sample(NamedTuple):
    """A value of a metric, with the values of its dimensions."""

    at: datetime
    value: float
    dimensions: Mapping[str, str] = MappingProxyType({})


class Series(NamedTuple):
    """What fires and clears by itself: a resource, and values of the dimensions that a rule splits by."""

    target: str
    of: str = ""


@dataclass(frozen=True)
class Measured:
    """What was measured: log rows by table; a metric's values by resource and name; events of the activity log.

    Rows and values have a time; what is older than a rule looks back is not seen.
    """

    tables: Mapping[str, Table] = field(default_factory=lambda: MappingProxyType({}))
    metrics: Mapping[tuple[str, str], Sequence[Sample]] = field(default_factory=lambda: MappingProxyType({}))
    events: Sequence[Mapping[str, str]] = ()


def check(state: State, rule: Resource, now: datetime, measured: Measured) -> None:
    """Evaluate a rule once, as Azure does every few minutes. Of what nothing was measured, nothing changes.

    Raises:
        SimulatorError: the rule asks for something that is not imitated.
    """
    if not rule.properties.get("enabled", True):
        return
    quiet: dict[str, int] = rule.notes.setdefault(_QUIET, {})
    seen = _LOOKS[rule.key](rule.properties, now, measured)
    if rule.key == _LOG_RULE:  # a value that is no longer in the answer has no rows, which is something to see
        seen = {**{Series(*name.split(_BETWEEN, 1)): False for name in quiet}, **seen}
    for series, wrong in seen.items():
        name = _BETWEEN.join(series)
        quiet[name] = 0 if wrong else quiet.get(name, 0) + 1
        if wrong:
            alarms.fire(state, rule, *series)
        elif quiet[name] >= QUIET_CHECKS and rule.properties.get("autoMitigate"):
            alarms.clear(rule, *series)


def _log(rule: Mapping[str, Any], now: datetime, measured: Measured) -> dict[Series, bool]:
    """Of the workspace, or of each combination of its dimensions' values: whether there are more rows than allowed."""
    since = now - _span(rule["windowSize"])
    seen = {name: _recent(table, since, now) for name, table in measured.tables.items()}
    (condition,) = rule["criteria"]["allOf"]
    dimensions = condition.get("dimensions") or ()
    counts = Counter(
        _combination(dimensions, row) for row in run(condition["query"], seen, now) if _included(dimensions, row)
    )
    if not dimensions:
        counts[""] += 0
    return {
        Series(scope, of): _holds(condition, count, "Count") for scope in rule["scopes"] for of, count in counts.items()
    }


def _recent(table: Table, since: datetime, now: datetime) -> Table:
    return Table(table.columns, [row for row in table.rows if since < row["TimeGenerated"] <= now])


def _metric(rule: Mapping[str, Any], now: datetime, measured: Measured) -> dict[Series, bool]:
    """Of each VM by itself, and of each value of a dimension that is asked for. One that is deallocated has none."""
    since, found = now - _span(rule["windowSize"]), {}
    for target in rule["scopes"]:
        for one in rule["criteria"]["allOf"]:
            dimensions = one.get("dimensions") or ()
            values: dict[str, list[float]] = {}
            for sample in measured.metrics.get((target, one["metricName"]), ()):
                if since < sample.at <= now and _included(dimensions, sample.dimensions):
                    values.setdefault(_combination(dimensions, sample.dimensions), []).append(sample.value)
            for of, each in values.items():
                found[Series(target, of)] = _holds(one, sum(each) / len(each), "Average")
    return found


def _included(dimensions: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> bool:
    """Whether a row or a sample is of those that a condition looks at."""
    for one in dimensions:
        if one["operator"] != "Include":
            raise SimulatorError(f"the dimension operator {one['operator']} is not imitated")
        if one["name"] not in values:
            raise SimulatorError(f"there is no dimension {one['name']}")
        if "*" not in one["values"] and values[one["name"]] not in one["values"]:
            return False
    return True


def _combination(dimensions: Sequence[Mapping[str, Any]], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{one['name']}={values[one['name']]}" for one in dimensions)


def _holds(condition: Mapping[str, Any], value: float, aggregation: str) -> bool:
    compare = _COMPARE.get(condition["operator"])
    if condition["timeAggregation"] != aggregation or compare is None:
        raise SimulatorError(f"{condition['timeAggregation']} {condition['operator']} is not imitated")
    return compare(value, condition["threshold"])


def _activity(rule: Mapping[str, Any], _: datetime, measured: Measured) -> dict[Series, bool]:
    """Of the scopes with an event that has all the fields; words without case, as Azure compares them."""
    wanted = {one["field"]: one["equals"].lower() for one in rule["condition"]["allOf"]}
    found = [
        event["resourceId"].lower()
        for event in measured.events
        if all(event.get(name, "").lower() == value for name, value in wanted.items())
    ]
    return {
        Series(scope): any(f"{each}/".startswith(f"{scope.lower()}/") for each in found) for scope in rule["scopes"]
    }


def _span(duration: str) -> timedelta:
    found = _DURATION.fullmatch(duration)
    if found is None:
        raise SimulatorError(f"the duration {duration} is not imitated")
    return timedelta(**{unit: int(value) for unit, value in found.groupdict(default="0").items()})


_LOOKS: Final = {
    "monitor:ActivityLogAlert": _activity,
    "monitor:MetricAlert": _metric,
    _LOG_RULE: _log,
}
