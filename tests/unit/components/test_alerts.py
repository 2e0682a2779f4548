from __future__ import annotations

import json
import uuid
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from components import queries
from components.alert_rules import Alert, alerts, peers, workbook
from components.alerts import Alerts, AlertsArgs, window
from gateway_policies.entities import Entity
from infra.reports import openapi_doc
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recording, run_program

RULE, GROUP, WORKBOOK = "monitor:ScheduledQueryRule", "monitor:ActionGroup", "applicationinsights:Workbook"
METRIC, ACTIVITY = "monitor:MetricAlert", "monitor:ActivityLogAlert"
WORKSPACE = arm_id("Microsoft.OperationalInsights/workspaces", "logs")
VMS = (arm_id("Microsoft.Compute/virtualMachines", "vm-1"), arm_id("Microsoft.Compute/virtualMachines", "vm-2"))


def args(emails: tuple[str, ...], gateway_logs: bool) -> AlertsArgs:
    return AlertsArgs(scope(plan()), WORKSPACE, VMS, peers(plan().gateway), emails, gateway_logs)


@cache
def build(preview: bool = False, emails: tuple[str, ...] = ("a@b.example",), gateway_logs: bool = True) -> Recording:
    return run_program(lambda: Alerts("watch", args(emails, gateway_logs)) and None, preview=preview)


def items() -> dict[str, Any]:
    return {item["name"]: item["content"] for item in json.loads(workbook("T"))["items"]}


def test_the_workbook_asks_the_queries_that_lie_beside_it() -> None:
    asked = {content["query"] for content in items().values() if "query" in content}
    assert asked == {
        queries.query(name) for name in ("tokens_by_product", "tokens_by_subscription", "latency", "refusals", "nodes")
    }
    assert items()["heading"]["json"].startswith("## T\n")
    assert "$" not in json.dumps(items())


def test_the_workbook_shows_one_time_range_and_belongs_to_the_workspace(preview: bool) -> None:
    made = build(preview).one(WORKBOOK)
    assert uuid.UUID(made["resourceName"])
    assert (made["sourceId"], made["category"], made["kind"]) == (WORKSPACE.lower(), "workbook", "shared")
    assert made["tags"]["hidden-title"] == made["displayName"]
    assert json.loads(made["serializedData"])["version"] == "Notebook/1.0"
    for content in items().values():
        if "query" in content:
            assert content["timeContextFromParameter"] == "TimeRange"


@pytest.mark.parametrize(("minutes", "written"), [(15, "PT15M"), (60, "PT1H"), (90, "PT1H30M")])
def test_a_window_is_written_as_azure_gives_it_back(minutes: int, written: str) -> None:
    assert window(minutes) == written


def test_every_alert_of_the_logs_asks_a_query_and_fires_on_the_first_row(preview: bool) -> None:
    recording = build(preview)
    rules = {rule["ruleName"]: rule for rule in recording.of(RULE)}
    asked = [alert for alert in alerts() if alert.query is not None]
    assert set(rules) == {f"huddleai-dev-{alert.name}" for alert in asked}
    for alert in asked:
        rule = rules[f"huddleai-dev-{alert.name}"]
        (condition,) = rule["criteria.allOf"]
        assert condition["query"] == queries.of_nodes(str(alert.query), peers(plan().gateway))
        assert (condition["timeAggregation"], condition["operator"], condition["threshold"]) == (
            "Count",
            "GreaterThan",
            0,
        )
        split = [{"name": alert.by, "operator": "Include", "values": ["*"]}] if alert.by else None
        assert condition.get("dimensions") == split
        assert rule["windowSize"] == window(alert.minutes)
        assert rule["severity"] == alert.severity
        assert rule["scopes"] == [WORKSPACE]


def test_the_nodes_in_a_query_are_the_plans() -> None:
    text = queries.of_nodes("alert_node_out_of_pool", {"10.9.8.7:8000": "a", "10.9.8.6:8000": "a"})
    assert '["10.9.8.7:8000", "a", "10.9.8.6:8000", "a"];' in text
    assert "10.0.0.4" not in text
    assert [name for name in queries.names() if queries.asks_for_nodes(name)] == ["alert_node_out_of_pool"]


def test_a_node_without_an_equal_is_not_compared() -> None:
    alone = AlertsArgs(scope(plan()), WORKSPACE, VMS, {}, (), gateway_logs=True)
    recording = run_program(lambda: Alerts("watch", alone) and None, preview=False)
    assert "huddleai-dev-node-out-of-pool" not in {rule["ruleName"] for rule in recording.of(RULE)}


def test_one_metric_of_every_vm_is_watched(preview: bool) -> None:
    rule = build(preview).one(METRIC)
    assert (rule["scopes"], rule["targetResourceType"]) == (list(VMS), "Microsoft.Compute/virtualMachines")
    assert (rule["targetResourceRegion"], rule["location"]) == (plan().location, "global")
    (condition,) = rule["criteria.allOf"]
    assert (condition["metricName"], condition["operator"], condition["threshold"]) == (
        "VmAvailabilityMetric",
        "LessThan",
        1,
    )
    (context,) = condition["dimensions"]
    assert (context["name"], context["operator"], context["values"]) == (
        "Context",
        "Include",
        ["Platform", "Unknown"],
    )


def test_what_is_told_of_nodes_products_and_refusers_is_told_of_each() -> None:
    assert {alert.name: alert.by for alert in alerts() if alert.query} == {
        "no-node-answers": None,
        "server-errors": None,
        "node-out-of-pool": "Node",
        "refused-keys": "Refuser",
        "unmetered": "ProductId",
        "slow-answers": "ProductId",
        "refusals": "ProductId",
    }


def test_failed_run_commands_of_every_vm_are_watched(preview: bool) -> None:
    rule = build(preview).one(ACTIVITY)
    assert (rule["scopes"], rule["location"]) == (list(VMS), "global")
    assert {one["field"]: one["equals"] for one in rule["condition.allOf"]} == {
        "category": "Administrative",
        "operationName": "Microsoft.Compute/virtualMachines/runCommands/write",
        "status": "Failed",
    }


def test_people_are_told_where_the_stack_names_some() -> None:
    recording = build()
    group = recording.one(GROUP)
    assert [receiver["emailAddress"] for receiver in group["emailReceivers"]] == ["a@b.example"]
    assert len(group["groupShortName"]) <= 12
    for rule in recording.of(RULE):
        assert rule["actions.actionGroups"] == [group.id]


def test_without_addresses_alerts_show_in_the_portal_only() -> None:
    recording = build(emails=())
    assert recording.of(GROUP) == []
    assert all(rule["actions"] is None for rule in recording.of(RULE))
    assert recording.one(METRIC)["actions"] == recording.one(ACTIVITY)["actions.actionGroups"] == []


def test_without_the_gateways_logs_there_is_nothing_to_ask() -> None:
    recording = build(gateway_logs=False)
    assert recording.of(RULE) == []
    assert len(recording.of(WORKBOOK)) == len(recording.of(METRIC)) == len(recording.of(GROUP)) == 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"query": "latency", "metric": {"name": "x", "below": 1}, "severity": 1, "minutes": 5}, "needs one of query"),
        ({"severity": 1, "minutes": 5}, "needs one of query"),
        ({"operation": "x/write", "severity": 1}, "an operation has severity 4 and no minutes"),
        ({"operation": "x/write", "severity": 4, "minutes": 5}, "an operation has severity 4 and no minutes"),
        ({"query": "latency", "severity": 1}, "needs minutes"),
        ({"operation": "x/write", "severity": 4, "by": "Node"}, "`by` needs a query"),
        ({"query": "latency", "severity": 5, "minutes": 5}, "less than or equal to 4"),
    ],
)
def test_a_row_that_azure_would_not_take_is_refused(row: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Alert.model_validate({"description": "d", **row})


@pytest.mark.parametrize("name", queries.names())
def test_queries_ask_for_our_api_and_our_operations_by_their_own_names(name: str) -> None:
    text = queries.query(name)
    if "ApiId" in text:
        assert f'ApiId == "{Entity.API}"' in text
    operations = {o["operationId"] for path in openapi_doc.document()["paths"].values() for o in path.values()}
    if "OperationId" in text:
        assert any(f'"{operation}"' in text for operation in operations)


@pytest.mark.parametrize("name", queries.names())
def test_queries_work_before_the_first_metric(name: str) -> None:
    text = queries.query(name)
    assert text.count("AppMetrics") == text.count("union isfuzzy=true AppMetrics, (datatable(")


def test_the_metrics_that_are_asked_for_are_those_that_the_policy_writes() -> None:
    from gateway_policies import render as policies  # noqa: PLC0415 - only this test renders a policy

    policy = policies.api_policy(plan().gateway)
    for dimension in ("Product ID", "Subscription ID"):
        assert f'<dimension name="{dimension}" />' in policy
        assert any(f'Properties["{dimension}"]' in queries.query(name) for name in queries.names())
