from __future__ import annotations

from tests.unit.builders import plan
from tests.unit.components.gateway_program import SERVICE, build, standard
from tests.unit.recording import CANARY, assert_no_canary_outside_secrets

# --- What is told about the traffic


def test_no_diagnostic_sees_a_body_or_a_key(preview: bool) -> None:
    recording = standard(preview)
    diagnostics = [*recording.of("apimanagement:Diagnostic"), *recording.of("apimanagement:ApiDiagnostic")]
    assert len(diagnostics) == 2
    for diagnostic in diagnostics:
        assert diagnostic["diagnosticId"] == "applicationinsights"
        for side in ("frontend", "backend"):
            for direction in ("request", "response"):
                message = diagnostic[f"{side}.{direction}"]
                assert message["body"] == {"bytes": 0}
                assert message["headers"] == []
                assert message["dataMasking"] == {"queryParams": [{"mode": "Hide", "value": "subscription-key"}]}
        assert diagnostic["alwaysLog"] == "allErrors"
        assert diagnostic["sampling"] == {"samplingType": "fixed", "percentage": 100}
        assert diagnostic["logClientIp"] is False
        assert diagnostic["metrics"] is True
    assert diagnostics[1]["apiId"] == "openai"


def test_the_logger_names_its_secret_and_does_not_hold_it(preview: bool) -> None:
    recording = standard(preview)
    logger = recording.one("apimanagement:Logger")
    assert logger["credentials"] == {"connectionString": "{{insights-connection-string}}"}
    assert logger["loggerType"] == "applicationInsights"
    value = recording.one("apimanagement:NamedValue", "connection")
    assert (value["namedValueId"], value["displayName"]) == ("insights-connection-string",) * 2
    assert value["secret"] is True
    assert value.secret_paths == {"value"}
    assert value["value"] == f"{CANARY}-insights"
    assert recording.waits_for(logger, value)


def test_a_connection_string_that_came_unmarked_is_marked() -> None:
    recording = build(plan(), insights_connection_string=f"{CANARY}-plain")
    assert_no_canary_outside_secrets(recording)


def test_gateway_logs_go_to_log_analytics_and_no_category_that_holds_prompts() -> None:
    recording = standard()
    export = recording.one("monitor:DiagnosticSetting")
    assert export["resourceUri"] == recording.one(SERVICE).id
    assert export["workspaceId"].endswith("/workspaces/logs")
    assert export["logs"] == [{"category": "GatewayLogs", "enabled": True}]
    assert export["metrics"] == [{"category": "AllMetrics", "enabled": True}]


def test_the_stack_gets_the_gateways_addresses() -> None:
    recording = standard()
    name = recording.one(SERVICE)["serviceName"]
    assert recording.exports["url"] == f"https://{name}.azure-api.net"
    assert recording.exports["portal"] == f"https://{name}.developer.azure-api.net"
    assert recording.exports["name"] == name
