from __future__ import annotations

import json
import uuid
from functools import cache
from typing import Any

import pytest

from components import queries
from components.alert_rules import alerts, workbook
from components.alerts import Alerts, AlertsArgs, window
from gateway_policies.entities import Entity
from infra.reports import openapi_doc
from tests.unit.builders import arm_id, plan, scope
from tests.unit.recording import Recording, run_program

RULE, GROUP, WORKBOOK = "monitor:ScheduledQueryRule", "monitor:ActionGroup", "applicationinsights:Workbook"
WORKSPACE = arm_id("Microsoft.OperationalInsights/workspaces", "logs")


@cache
def build(preview: bool = False, emails: tuple[str, ...] = ("a@b.example",), gateway_logs: bool = True) -> Recording:
    return run_program(
        lambda: Alerts("watch", AlertsArgs(scope(plan()), WORKSPACE, emails, gateway_logs)) and None, preview=preview
    )


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


def test_every_alert_asks_a_query_and_fires_on_the_first_row(preview: bool) -> None:
    recording = build(preview)
    rules = {rule["ruleName"]: rule for rule in recording.of(RULE)}
    assert set(rules) == {f"huddleai-dev-{alert.name}" for alert in alerts()}
    for alert in alerts():
        rule = rules[f"huddleai-dev-{alert.name}"]
        (condition,) = rule["criteria.allOf"]
        assert condition["query"] == queries.query(alert.query)
        assert (condition["timeAggregation"], condition["operator"], condition["threshold"]) == (
            "Count",
            "GreaterThan",
            0,
        )
        assert rule["windowSize"] == window(alert.minutes)
        assert rule["severity"] == alert.severity
        assert rule["scopes"] == [WORKSPACE]


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


def test_without_the_gateways_logs_there_is_nothing_to_ask() -> None:
    recording = build(gateway_logs=False)
    assert recording.of(RULE) == recording.of(GROUP) == []
    assert len(recording.of(WORKBOOK)) == 1


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
