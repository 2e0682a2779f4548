"""docs/runbooks/alarms.md: each alarm has its section, and what is written there can be run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from components import alert_rules, queries
from infra.cli.main import app
from infra.operations import api_versions, arm, power, stack_outputs, stack_state
from simulator.azure.state.store import Store
from simulator.kusto.run import Table, run
from tests.unit.infra.status.arranged import GATEWAY, SECOND, VMS

RUNBOOK = Path("docs/runbooks/alarms.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"(?ms)^## (\S+)$(.*?)(?=^## |\Z)", RUNBOOK))
COMMANDS = {
    name: re.findall(r"(?m)^\$ infra (.+)$", "\n".join(re.findall(r"(?s)```console\n(.*?)```", text)))
    for name, text in SECTIONS.items()
}


def test_each_alarm_has_a_section_with_commands_and_says_so_in_its_mail() -> None:
    alerts = list(alert_rules.alerts())
    assert [alert.name for alert in alerts] == list(SECTIONS)
    for alert in alerts:
        assert COMMANDS[alert.name], alert.name
        assert alert.description.endswith("See docs/runbooks/alarms.md.")
        assert f"| [{alert.name}](#{alert.name}) | {alert.severity} |" in RUNBOOK


@pytest.mark.parametrize("name", SECTIONS)
def test_the_commands_run(name: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One node is stopped; the commands before the one that starts it say so, and those after it say that all serve."""
    monkeypatch.setattr(stack_state, "known_ids", lambda _: stack_state.ids_in(json.dumps(VMS)))
    monkeypatch.setattr(stack_outputs, "outputs", lambda _: {"gateway_id": GATEWAY, "products": []})
    monkeypatch.setattr(power, "PAUSE_S", 0.0)
    with arm.connect() as azure:
        azure.begin(VMS[SECOND], "deallocate", api_versions.COMPUTE)
    for command in COMMANDS[name]:
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == (1 if command.startswith("status") else 0), (command, done.output)
    told = CliRunner().invoke(app, ["status", "-s", "dev"])
    assert told.exit_code == (0 if "start -s dev" in COMMANDS[name] else 1)


def test_the_query_of_the_runbook_tells_who_is_refused() -> None:
    (query,) = re.findall(r"(?s)```kusto\n(.*?)```", RUNBOOK)
    columns = json.loads(Path("tools/kql/tables.json").read_text(encoding="utf-8"))["ApiManagementGatewayLogs"]
    seen = [("203.0.113.9", 401)] * 3 + [("203.0.113.8", 401), ("203.0.113.7", 200)]
    rows = [{"ApiId": "openai", "CallerIpAddress": caller, "ResponseCode": code} for caller, code in seen]
    found = run(query, {"ApiManagementGatewayLogs": Table.of(columns, rows)})
    assert found == [
        {"CallerIpAddress": "203.0.113.9", "Refused": 3},
        {"CallerIpAddress": "203.0.113.8", "Refused": 1},
    ]


@pytest.mark.parametrize("name", queries.names())
def test_every_query_of_the_program_can_be_run_here(name: str) -> None:
    schema = json.loads(Path("tools/kql/tables.json").read_text(encoding="utf-8"))
    run(queries.query(name), {table: Table.of(columns, []) for table, columns in schema.items()})
