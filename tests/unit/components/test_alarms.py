"""Each alarm, as the program sends it, fires and clears on a simulated Azure Monitor, and reaches the action group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from components import alert_rules, queries
from components.alerts import Alerts, AlertsArgs
from plan.azure.model import AzurePlan
from simulator.azure import alarms, watch
from simulator.azure.state.store import Resource, State
from simulator.azure.watch import QUIET_CHECKS, Measured, Sample
from simulator.kusto.run import Table, run
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import run_program

WORKSPACE = arm_id("Microsoft.OperationalInsights/workspaces", "logs")
VMS = [arm_id("Microsoft.Compute/virtualMachines", f"vm-{number}") for number in (1, 2)]
RULES = ("monitor:ActivityLogAlert", "monitor:MetricAlert", "monitor:ScheduledQueryRule")
START = datetime(2026, 11, 29, 12, tzinfo=UTC)
EARLIER = START - timedelta(minutes=20)
"""Long enough ago for an alarm that waits for what comes late."""
SCHEMA = json.loads(Path("tools/kql/tables.json").read_text(encoding="utf-8"))
Row = Mapping[str, Any]


def args(built: AzurePlan, gateway_logs: bool = True) -> AlertsArgs:
    return AlertsArgs(scope(built), WORKSPACE, VMS, alert_rules.peers(built.gateway), ("a@b.example",), gateway_logs)


@cache
def sent() -> Mapping[str, tuple[str, str, Mapping[str, Any]]]:
    """What the program sends for each alarm: type, id and properties; and of the action group."""
    recording = run_program(lambda: Alerts("watch", args(plan())) and None, preview=False)
    return {
        one.name.removeprefix("watch-"): (kind, one.id, one.plain)
        for kind in (*RULES, "monitor:ActionGroup")
        for one in recording.of(kind)
    }


@dataclass
class Monitor:
    """One rule on a simulated Azure Monitor, with a clock."""

    name: str
    state: State = field(default_factory=lambda: State(salt="s"))
    now: datetime = START

    def __post_init__(self) -> None:
        kind, rule_id, properties = sent()[self.name]
        self.rule = Resource(rule_id, f"azure-native:{kind}", dict(properties))
        self.state.put(self.rule)

    def look(self, measured: Measured, minutes: int = 5) -> list[str]:
        """The next evaluation; the resources for which the alarm then fires."""
        self.now += timedelta(minutes=minutes)
        watch.check(self.state, self.rule, self.now, measured)
        return self.firing()

    def firing(self) -> list[str]:
        """The resources for which the alarm fires."""
        fired = alarms.listed(self.state, {"monitorCondition": "Fired"})
        return [one["properties"]["essentials"]["targetResource"] for one in fired]

    def of(self) -> list[str]:
        """The values of the dimension for which the alarm fires."""
        return [one["of"] for one in self.rule.notes["alerts"] if not one["resolved"]]


def logs(rows: Iterable[Row], tokens: Mapping[str, float] | None = None, at: datetime = START) -> Measured:
    """Rows of the gateway's log, and tokens that were counted by product; no table of metrics without them."""
    time = {"TimeGenerated": at}
    tables = {
        "ApiManagementGatewayLogs": Table.of(
            SCHEMA["ApiManagementGatewayLogs"], [{**time, "ApiId": "openai", **row} for row in rows]
        )
    }
    if tokens is not None:
        counted = [
            {**time, "Name": "Total Tokens", "Sum": count, "Properties": {"Product ID": product}}
            for product, count in tokens.items()
        ]
        tables["AppMetrics"] = Table.of(SCHEMA["AppMetrics"], counted)
    return Measured(tables=tables)


def answered(count: int, node: int = 1, product: str = "developers", **row: Any) -> list[Row]:
    """Requests that a node answered."""
    (backend,) = (one for one in plan().gateway.backends if one.name == f"node-{node}")
    whole = {
        "ResponseCode": 200,
        "BackendResponseCode": 200,
        "IsRequestSuccess": True,
        "ProductId": product,
        "OperationId": "create-chat-completion",
        "BackendUrl": f"{backend.url}/chat/completions",
        "TotalTime": 900,
    }
    return [{**whole, **row}] * count


def failed(count: int, **row: Any) -> list[Row]:
    """Requests that no node answered."""
    none = {"BackendResponseCode": None, "BackendUrl": None, "IsRequestSuccess": False}
    return answered(count, **{**none, "ResponseCode": 503, **row})


def refused(count: int, by_node: bool = False) -> list[Row]:
    return answered(count, ResponseCode=401, BackendResponseCode=401 if by_node else None, IsRequestSuccess=False)


def both(count: int) -> list[Row]:
    return [*answered(count, 1), *answered(count, 2)]


CASES: Mapping[str, list[tuple[str, Callable[[], Measured], bool]]] = {
    "no-node-answers": [
        ("all nodes are stopped", lambda: logs(failed(3)), True),
        ("they are out, and many ask", lambda: logs(failed(40)), True),
        ("nobody asks, as at night", lambda: logs([]), False),
        ("two requests failed", lambda: logs(failed(2)), False),
        ("one node answers", lambda: logs([*failed(40), *answered(1)]), False),
        ("no node has begun", lambda: logs(answered(9, ResponseCode=503, BackendResponseCode=503)), True),
        ("nodes answer, with errors", lambda: logs(answered(9, ResponseCode=500, BackendResponseCode=500)), True),
        ("people give up before an answer", lambda: logs(failed(3, ResponseCode=0)), True),
        ("the log has no status", lambda: logs(failed(3, ResponseCode=None)), True),
        (
            "one node has not begun, the other serves",
            lambda: logs([*answered(40, ResponseCode=503, BackendResponseCode=503), *answered(1, 2)]),
            False,
        ),
        (
            "nodes are full",
            lambda: logs([*failed(9), *answered(9, ResponseCode=429, BackendResponseCode=429)]),
            False,
        ),
        ("a key is wrong", lambda: logs(refused(60)), False),
    ],
    "node-out-of-pool": [
        ("the second node is silent", lambda: logs(answered(60, 1)), True),
        (
            "the second node only fails",
            lambda: logs([*answered(60, 1), *answered(9, 2, BackendResponseCode=503)]),
            True,
        ),
        ("both answer", lambda: logs(both(30)), False),
        ("few ask", lambda: logs(answered(59, 1)), False),
        ("nobody asks", lambda: logs([]), False),
    ],
    "server-errors": [
        ("every fifth fails", lambda: logs([*answered(80), *failed(20)]), True),
        ("every hundredth fails", lambda: logs([*answered(99), *failed(1)]), False),
    ],
    "refused-keys": [
        ("somebody tries keys", lambda: logs(refused(50)), True),
        ("nodes do not take the gateway's key", lambda: logs(refused(5, by_node=True)), True),
        ("a client has an old key", lambda: logs(refused(49)), False),
        ("one refusal of a node", lambda: logs(refused(4, by_node=True)), False),
    ],
    "unmetered": [
        ("no token was ever counted", lambda: logs(answered(20), at=EARLIER), True),
        (
            "none of this product",
            lambda: logs([*answered(20), *answered(20, product="web")], {"web": 5.0}, at=EARLIER),
            True,
        ),
        ("it is counted", lambda: logs(answered(20), {"developers": 900.0}, at=EARLIER), False),
        ("only models are listed", lambda: logs(answered(40, OperationId="list-models"), {}, at=EARLIER), False),
        ("few ask", lambda: logs(answered(19), {}, at=EARLIER), False),
        ("they asked just now", lambda: logs(answered(20), {}), False),
    ],
    "slow-answers": [
        ("one in ten takes long", lambda: logs([*answered(18), *answered(2, TotalTime=200_000)]), True),
        ("all are quick", lambda: logs(answered(20)), False),
    ],
    "refusals": [
        ("half is refused", lambda: logs([*answered(10), *failed(10, ResponseCode=429)]), True),
        ("one is refused", lambda: logs([*answered(19), *failed(1, ResponseCode=429)]), False),
    ],
}
WRONG = [(name, why, measured) for name, cases in CASES.items() for why, measured, fires in cases if fires]
RIGHT = [(name, why, measured) for name, cases in CASES.items() for why, measured, fires in cases if not fires]


@pytest.mark.parametrize(("name", "why", "measured"), WRONG, ids=[f"{one}: {why}" for one, why, _ in WRONG])
def test_an_alarm_of_the_logs_fires_once_and_clears_when_three_checks_find_nothing(
    name: str, why: str, measured: Callable[[], Measured]
) -> None:
    monitor = Monitor(name)
    assert monitor.look(measured()) == [WORKSPACE], why
    assert monitor.look(measured()) == [WORKSPACE], "it does not fire again while it fires"
    good = logs(both(40), {"developers": 1.0}, at=monitor.now)
    for _ in range(QUIET_CHECKS - 1):
        assert monitor.look(good) == [WORKSPACE]
    assert monitor.look(good) == []
    assert len(list(alarms.listed(monitor.state, {"monitorCondition": "Resolved"}))) == 1


@pytest.mark.parametrize(("name", "why", "measured"), RIGHT, ids=[f"{one}: {why}" for one, why, _ in RIGHT])
def test_an_alarm_of_the_logs_is_quiet(name: str, why: str, measured: Callable[[], Measured]) -> None:
    assert Monitor(name).look(measured()) == [], why


def test_what_is_older_than_an_alarm_looks_back_is_forgotten() -> None:
    monitor = Monitor("no-node-answers")
    assert monitor.look(logs(failed(3)), minutes=14) == [WORKSPACE]
    assert Monitor("no-node-answers").look(logs(failed(3)), minutes=15) == []


def silent(node: int, at: datetime) -> Measured:
    """The other one of two nodes answers."""
    return logs(answered(60, 3 - node), at=at)


def test_the_next_node_is_told_while_the_first_still_fires_and_clears_by_itself() -> None:
    monitor = Monitor("node-out-of-pool")
    monitor.look(silent(2, monitor.now))
    second = monitor.of()
    assert len(second) == 1
    monitor.look(silent(1, monitor.now))
    both_nodes = monitor.of()
    assert len(both_nodes) == 2
    assert both_nodes[0] == second[0] != both_nodes[1]
    for _ in range(QUIET_CHECKS - 1):
        monitor.look(silent(1, monitor.now))
    assert monitor.of() == both_nodes[1:], "the one that answers again has cleared"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("unmetered", lambda product: answered(20, product=product)),
        ("slow-answers", lambda product: answered(20, product=product, TotalTime=200_000)),
        ("refusals", lambda product: failed(20, product=product, ResponseCode=429)),
    ],
)
def test_the_next_product_is_told_while_the_first_still_fires(name: str, row: Callable[[str], list[Row]]) -> None:
    monitor = Monitor(name)

    def at() -> datetime:
        return monitor.now - timedelta(minutes=20) if name == "unmetered" else monitor.now

    monitor.look(logs(row("developers"), at=at()))
    assert monitor.of() == ["ProductId=developers"]
    monitor.look(logs([*row("developers"), *row("web")], at=at()))
    assert monitor.of() == ["ProductId=developers", "ProductId=web"]


def test_who_refuses_keys_is_told_by_itself() -> None:
    monitor = Monitor("refused-keys")
    monitor.look(logs([*refused(50), *refused(5, by_node=True)]))
    assert sorted(monitor.of()) == ["Refuser=gateway", "Refuser=node"]


def test_metrics_that_come_later_than_the_log_are_waited_for() -> None:
    """Answers at 12:00; their metrics are in the workspace at 12:05, or never."""
    counted, never = Monitor("unmetered"), Monitor("unmetered")
    for minute in range(5, 60, 5):
        tokens = {"developers": 900.0} if minute > 5 else {}
        assert counted.look(logs(answered(20), tokens)) == [], minute
        assert never.look(logs(answered(20), {})) == ([WORKSPACE] if minute > 15 else []), minute


def test_tokens_of_another_hour_do_not_speak_for_answers_of_this_one() -> None:
    """Azure may give a query with `ago` a wider range of time than the alarm's window."""
    now = START + timedelta(minutes=30)
    old = logs([], {"developers": 9.0}, at=now - timedelta(hours=3)).tables
    tables = {**old, "ApiManagementGatewayLogs": logs(answered(20)).tables["ApiManagementGatewayLogs"]}
    assert len(run(queries.query("alert_unmetered"), tables, now)) == 1


def available(values: Mapping[str, list[float]], begin: datetime, context: str = "Platform") -> Measured:
    """A value each minute; a deallocated VM has none."""
    times = [begin + timedelta(minutes=minute) for minute in range(1, 6)]
    series = {
        (vm, "VmAvailabilityMetric"): [
            Sample(at, value, {"Context": context}) for at, value in zip(times, each, strict=True)
        ]
        for vm, each in values.items()
    }
    return Measured(metrics=series)


def test_a_vm_that_is_not_available_fires_by_itself_and_clears() -> None:
    monitor = Monitor("vm-unavailable")
    assert monitor.look(available({VMS[0]: [1.0] * 5, VMS[1]: [1, 1, 0, 0, 0]}, monitor.now)) == [VMS[1]]
    for _ in range(QUIET_CHECKS - 1):
        assert monitor.look(available({VMS[0]: [1.0] * 5, VMS[1]: [1.0] * 5}, monitor.now)) == [VMS[1]]
    assert monitor.look(available({VMS[0]: [1.0] * 5, VMS[1]: [1.0] * 5}, monitor.now)) == []


def test_a_stop_in_the_portal_measures_nothing_and_is_no_vm_that_failed() -> None:
    monitor = Monitor("vm-unavailable")
    assert monitor.look(Measured(metrics={(vm, "VmAvailabilityMetric"): [] for vm in VMS})) == []


@pytest.mark.parametrize(("context", "fired"), [("Customer", []), ("Platform", [VMS[1]]), ("Unknown", [VMS[1]])])
def test_only_people_who_stop_a_vm_are_no_failure(context: str, fired: list[str]) -> None:
    """Whoever shuts a VM down from within makes its metric 0; so does a host that fails."""
    monitor = Monitor("vm-unavailable")
    assert monitor.look(available({VMS[1]: [0.0] * 5}, monitor.now, context)) == fired


def event(vm: str, status: str, operation: str = "Microsoft.Compute/virtualMachines/runCommands/write") -> Row:
    return {
        "category": "Administrative",
        "operationName": operation,
        "status": status,
        "resourceId": f"{vm}/runCommands/huddle-apply",
    }


def test_a_run_command_that_failed_is_told_each_time_and_stays_until_somebody_closes_it() -> None:
    monitor = Monitor("run-command-failed")
    for quiet in (
        event(VMS[0], "Succeeded"),
        event(VMS[0], "Started"),
        event(VMS[0], "Failed", "Microsoft.Compute/virtualMachines/write"),
        event(arm_id("Microsoft.Compute/virtualMachines", "vm-10"), "Failed"),
        event(VMS[0].replace("/group/", "/others/"), "Failed"),
    ):
        assert monitor.look(Measured(events=[quiet])) == []
    assert monitor.look(Measured(events=[event(VMS[1].upper(), "Failed")])) == [VMS[1]]
    assert monitor.look(Measured(events=[event(VMS[1], "Failed")])) == [VMS[1], VMS[1]], "it has no state"
    for _ in range(QUIET_CHECKS + 1):
        assert monitor.look(Measured(events=[event(VMS[1], "Succeeded")])) == [VMS[1], VMS[1]]


def test_every_alarm_is_tried_here_and_reaches_the_action_group() -> None:
    names = {alert.name for alert in alert_rules.alerts()}
    assert names == {*CASES, "vm-unavailable", "run-command-failed"} == set(sent()) - {"people"}
    _, group, properties = sent()["people"]
    assert [one["emailAddress"] for one in properties["emailReceivers"]] == ["a@b.example"]
    for name in names:
        kind, rule_id, one = sent()[name]
        assert alarms.told(Resource(rule_id, f"azure-native:{kind}", dict(one))) == [group], name
        assert one["enabled"] is True


def test_with_a_gateway_of_others_only_azures_own_measurements_are_watched() -> None:
    recording = run_program(lambda: Alerts("watch", args(plan(), gateway_logs=False)) and None, preview=False)
    assert {one.name for kind in RULES for one in recording.of(kind)} == {
        "watch-vm-unavailable",
        "watch-run-command-failed",
    }


@pytest.mark.parametrize(
    ("changes", "peers"),
    [
        ({}, {"10.0.0.4:8000": "nodes/1/1", "10.0.0.5:8000": "nodes/1/1"}),
        ({"gateway": {"drain": [2]}}, {}),
        ({"nodes": {"count": 1}, "serving": {"topology": "replicas"}}, {}),
        ({"gateway": {"pool": {"1": {"weight": 9}}}}, {}),
    ],
)
def test_peers_are_nodes_that_should_get_as_much(changes: dict[str, Any], peers: dict[str, str]) -> None:
    assert alert_rules.peers(plan("dev", **changes).gateway) == peers


def test_a_home_and_those_that_stand_in_for_it_are_no_peers() -> None:
    assert alert_rules.peers(plan("dev", gateway={"affinity": "product"}).gateway) == {}
