from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.monitoring import Monitoring, MonitoringArgs
from plan.azure.model import AzurePlan
from simulator.plugin.values import Secret
from tests.unit.builders import plan, scope
from tests.unit.recording import Recording, assert_no_canary_outside_secrets, run_program

WORKSPACE, INSIGHTS = "operationalinsights:Workspace", "applicationinsights:Component"


def build(built: AzurePlan, preview: bool = False) -> Recording:
    def program() -> Mapping[str, Any]:
        monitoring = Monitoring("monitoring", MonitoringArgs(scope=scope(built), settings=built.monitoring))
        return {
            "workspace": monitoring.workspace_id,
            "insights": monitoring.insights_id,
            "connection": monitoring.insights_connection_string,
        }

    return run_program(program, preview=preview)


def test_logs_are_kept_and_capped_as_the_stack_says(preview: bool) -> None:
    workspace = build(plan(monitoring={"retention_days": 45, "daily_cap_gb": 2.5}), preview).one(WORKSPACE)
    assert workspace["workspaceName"] == "huddleai-dev-logs"
    assert workspace["retentionInDays"] == 45
    assert workspace["workspaceCapping.dailyQuotaGb"] == 2.5
    assert workspace["sku.name"] == "PerGB2018"


def test_insights_write_into_the_workspace() -> None:
    recording = build(plan())
    insights = recording.one(INSIGHTS)
    assert insights["resourceName"] == "huddleai-dev-insights"
    assert insights["workspaceResourceId"] == recording.one(WORKSPACE).id
    assert insights["ingestionMode"] == "LogAnalytics"
    assert recording.exports["workspace"] == recording.one(WORKSPACE).id
    assert recording.exports["insights"] == insights.id


def test_the_connection_string_is_a_secret_everywhere(preview: bool) -> None:
    recording = build(plan(), preview)
    assert_no_canary_outside_secrets(recording)
    assert isinstance(recording.exports["connection"], Secret)
    assert set(recording.one(INSIGHTS).additional_secret_outputs) >= {"connectionString", "instrumentationKey"}
