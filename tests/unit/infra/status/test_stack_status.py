"""`infra status` against ARM's stand-in: a stack that serves, and each way in which one does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from infra import program
from infra.cli.main import app
from infra.operations import api_versions, arm
from simulator.azure import alarms
from simulator.azure.state.store import Store
from tests.unit.builders import plan
from tests.unit.infra.status.arranged import FIRST, GATEWAY, PLAN, POOL, RULE, SECOND, VMS, applied, pooled, put

OLD = "0" * 64


def ask(*words: str) -> Result:
    return CliRunner().invoke(app, ["status", "-s", "dev", *words])


def told(*, code: int) -> dict[str, Any]:
    done = ask("--json")
    assert done.exit_code == code, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["serves"] is (code == 0)
    return found


def test_a_stack_that_serves_is_a_short_table_and_exit_code_0(store: Store, wanted: str) -> None:
    before = store.read()
    done = ask()
    assert done.exit_code == 0, done.output
    short = wanted[:12]
    assert done.stdout.splitlines() == [
        "dev (simulated): 2 of 2 nodes serve",
        "NODE                  VM       BUNDLE        READINESS  POOLS",
        f"{FIRST}  running  {short}  serving    nodes",
        f"{SECOND}  running  {short}  serving    nodes",
        f"last roll: succeeded, 2026-11-29: {FIRST} 12:00:01, {SECOND} 12:01:01",
        "alarms: none",
    ]
    assert store.read() == before, "it only reads"


def test_the_json_has_the_shape_that_is_documented(store: Store, wanted: str) -> None:
    found = told(code=0)
    shape = Path("docs/reference/status.md").read_text(encoding="utf-8")
    for keys in (found, found["nodes"][0], found["nodes"][0]["apply"], found["roll"], found["roll"]["order"][0]):
        assert [key for key in keys if f"`{key}`" not in shape] == []
    assert found["bundle"] == {"wanted": wanted, "everywhere": True}
    assert found["nodes"][0]["apply"] == {
        "state": "Succeeded",
        "exit_code": 0,
        "attempt": 3,
        "bundle": wanted,
        "began": "2026-11-29T12:00:01Z",
        "ended": "2026-11-29T12:00:59Z",
        "said": None,
    }
    assert found["pools"] == [{"id": POOL.id, "nodes": [FIRST, SECOND]}]
    assert (found["roll"]["began"], found["roll"]["ended"]) == ("2026-11-29T12:00:01Z", "2026-11-29T12:01:59Z")
    assert set(found["versions"]) == {"vllm", "torch", "ray", "python"}
    assert (found["nodes"][0]["image"], found["nodes"][0]["agent"]) == ("24.04.2026", None)


def test_a_deallocated_node_does_not_serve(store: Store) -> None:
    with arm.connect() as azure:
        azure.begin(VMS[SECOND], "deallocate", api_versions.COMPUTE)
    found = told(code=1)
    assert [node["serves"] for node in found["nodes"]] == [True, False]
    assert found["reasons"] == [f"{SECOND} is deallocated; run `infra start -s dev`"]
    assert f"! {SECOND} is deallocated; run `infra start -s dev`" in ask().stdout


WENT_BACK = json.dumps({"format": 1, "state": "rolled-back", "bundle": OLD})


@pytest.mark.parametrize(
    ("view", "readiness", "bundle", "reason"),
    [
        ({}, "failed", None, f"the last apply of {SECOND} failed: huddle-apply: readiness: not ready after 600 s"),
        (
            {"output": f"services done\n{WENT_BACK}\n"},
            "rolled-back",
            OLD,
            f"{SECOND} went back to its bundle before, since the new one failed: huddle-apply: readiness: not ready",
        ),
        ({"output": '{"state": "failed", "bundle": null}'}, "failed", None, "the last apply of"),
        ({"output": f'{{"state": "failed", "bundle": "{OLD}"}}'}, "failed", OLD, "the last apply of"),
        ({"output": '"bundle": "cut off"}'}, "failed", None, "the last apply of"),
        ({"executionState": "TimedOut"}, "failed", None, "the last apply of"),
    ],
)
def test_a_failed_run_command_says_what_the_node_serves_instead(
    store: Store, view: dict[str, str], readiness: str, bundle: str | None, reason: str
) -> None:
    with store.transaction() as state:
        said = "the engine's log\nhuddle-apply: readiness: not ready after 600 s\n"
        failed = {"executionState": "Failed", "exitCode": 1, "error": said, "startTime": "2026-11-29T13:00:00Z"}
        applied(state, SECOND, "f" * 64, **{**failed, **view})
    found = told(code=1)
    node = found["nodes"][1]
    assert (node["serves"], node["readiness"], node["bundle"]) == (False, readiness, bundle)
    assert node["reasons"][0].startswith(reason)
    assert node["reasons"][0].endswith("; run `make up STACK=dev`")
    assert found["versions"] is None, "of another bundle nobody tells versions"
    assert (found["roll"]["result"], found["roll"]["bundle"]) == ("failed", "f" * 64)
    assert [turn["node"] for turn in found["roll"]["order"]] == [FIRST, SECOND]


def test_a_roll_that_ended_after_the_first_node_is_partial_and_both_serve(store: Store, wanted: str) -> None:
    with store.transaction() as state:
        applied(state, FIRST, "f" * 64, startTime="2026-11-29T13:00:00Z", endTime="2026-11-29T13:05:00Z")
    found = told(code=0)
    assert found["bundle"] == {"wanted": wanted, "everywhere": False}
    roll = found["roll"]
    assert (roll["result"], roll["bundle"], [turn["node"] for turn in roll["order"]]) == (
        "partial",
        "f" * 64,
        [SECOND, FIRST],
    )
    assert f"this checkout would apply bundle {wanted[:12]}" in ask().stdout


def test_a_roll_that_runs_is_no_failure_but_its_node_does_not_serve_yet(store: Store, wanted: str) -> None:
    with store.transaction() as state:
        applied(state, SECOND, wanted, executionState="Running", startTime="2026-11-29T13:00:00Z", endTime="")
    found = told(code=1)
    assert found["nodes"][1]["readiness"] == "applying"
    assert (found["roll"]["result"], found["roll"]["ended"]) == ("running", None)


@pytest.mark.parametrize("state", ["Pending", "Running", "Creating", "Updating"])
def test_only_these_words_mean_that_a_node_is_applying(store: Store, wanted: str, state: str) -> None:
    with store.transaction() as azure:
        applied(azure, SECOND, wanted, executionState=state, startTime="2026-11-29T13:00:00Z", endTime="")
    found = told(code=1)
    assert (found["nodes"][1]["readiness"], found["roll"]["result"]) == ("applying", "running")


@pytest.mark.parametrize("word", ["Unknown", "Deleting", "Paused"])
def test_a_word_that_tells_nothing_is_not_taken_for_an_apply_under_way(store: Store, wanted: str, word: str) -> None:
    with store.transaction() as state:
        applied(state, SECOND, wanted, executionState=word, startTime="2026-11-29T13:00:00Z", endTime="")
    found = told(code=1)
    node = found["nodes"][1]
    assert (node["serves"], node["readiness"], node["bundle"]) == (False, "not-told", None)
    said = f"Azure calls the last apply of {SECOND} {word}, which tells nothing; run `make up STACK=dev`"
    assert node["reasons"] == [said]
    assert found["roll"]["result"] == "partial"


def test_a_node_that_is_in_no_pool_gets_no_requests(store: Store) -> None:
    with store.transaction() as state:
        pooled(state, POOL.members[0].id)
    found = told(code=1)
    assert [node["in_service"] for node in found["nodes"]] == [True, False]
    assert found["reasons"] == [f"{SECOND} is in no pool of the gateway; run `make up STACK=dev`"]


def test_a_drained_node_is_told_as_such(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    drained = plan("dev", gateway={"drain": [2]})
    monkeypatch.setattr(program, "load_azure_plan", lambda _: drained)
    with store.transaction() as state:
        pooled(state, POOL.members[0].id)
    found = told(code=1)
    assert [node["drained"] for node in found["nodes"]] == [False, True]
    assert found["reasons"] == [f"{SECOND} is in no pool of the gateway; `gateway.drain` names it"]


@pytest.mark.parametrize(
    ("remove", "reason"),
    [
        (lambda: VMS[FIRST], f"{FIRST} has no VM; run `make up STACK=dev`"),
        (
            lambda: f"{VMS[FIRST]}/runCommands/huddle-apply",
            f"{FIRST} was never given a bundle; run `make up STACK=dev`",
        ),
        (lambda: GATEWAY, f"{FIRST} is in no pool of the gateway; run `make up STACK=dev`"),
    ],
)
def test_what_somebody_deleted_is_told(store: Store, remove: Callable[[], str], reason: str) -> None:
    with store.transaction() as state:
        state.remove(remove())
    assert reason in told(code=1)["reasons"]


def test_alarms_that_fire_are_told_the_worst_first_and_one_that_cleared_is_not(store: Store) -> None:
    names = {"refusals": 3, "server-errors": 1}
    with store.transaction() as state:
        for name, severity in names.items():
            rule_id = f"{RULE}/{PLAN.names.alert(name)}"
            put(state, rule_id, "monitor:ScheduledQueryRule", severity=severity, description=f"{name}!")
            alarms.fire(state, state.resources[rule_id.lower()], VMS[FIRST])
        foreign = f"{RULE}/somebody-elses"
        put(state, foreign, "monitor:ScheduledQueryRule", severity=0)
        alarms.fire(state, state.resources[foreign.lower()], VMS[FIRST])
    found = told(code=0)
    assert [(one["rule"], one["severity"], one["target"]) for one in found["alarms"]] == [
        (PLAN.names.alert("server-errors"), 1, FIRST),
        (PLAN.names.alert("refusals"), 3, FIRST),
    ]
    with store.transaction() as state:
        for name in names:
            alarms.clear(alarms.rule(state, PLAN.names.alert(name)), VMS[FIRST])
    assert told(code=0)["alarms"] == []


def test_alarms_of_one_rule_and_target_are_one_line_with_a_count(store: Store) -> None:
    """Each attempt that failed is an alert of its own; those of another node are another line."""
    rule_id = f"{RULE}/{PLAN.names.alert('run-command-failed')}"
    with store.transaction() as state:
        put(state, rule_id, "monitor:ActivityLogAlert", description="No bundle.")
        for node in (FIRST, FIRST, FIRST, SECOND):
            alarms.fire(state, state.resources[rule_id.lower()], VMS[node])
    assert len(told(code=0)["alarms"]) == 4
    lines = [line for line in ask().stdout.splitlines() if line.startswith("alarm:")]
    assert [
        (" 3 times since " in line, f", on {node}. No bundle." in line)
        for line, node in zip(lines, (FIRST, SECOND), strict=True)
    ] == [
        (True, True),
        (False, True),
    ]


def test_log_alarms_that_azure_switched_off_are_named(store: Store) -> None:
    assert told(code=0)["alarms_off"] == []
    with store.transaction() as state:
        for name, enabled in (("unmetered", False), ("refusals", True), ("slow-answers", False)):
            put(state, f"{RULE}/{PLAN.names.alert(name)}", "monitor:ScheduledQueryRule", enabled=enabled)
        put(state, f"{RULE}/somebody-elses", "monitor:ScheduledQueryRule", enabled=False)
    off = [PLAN.names.alert(name) for name in ("slow-answers", "unmetered")]
    assert told(code=0)["alarms_off"] == off
    lines = [line for line in ask().stdout.splitlines() if line.startswith("alarm off: ")]
    assert [line.split()[2] for line in lines] == off
    assert lines[0].endswith("`make up STACK=dev PULUMI_FLAGS=--refresh` turns it on")


def test_without_the_right_to_read_rules_the_alarms_that_fire_are_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise arm.ArmError("Azure refused (AuthorizationFailed): no. Sign in as somebody with the role `Reader`.")

    monkeypatch.setattr("infra.operations.arm_alerts.switched_off", refuse)
    found = told(code=0)
    assert (found["alarms"], found["alarms_off"]) == ([], None)
    assert found["not_told"][0].startswith("alarms that are off: Azure refused (AuthorizationFailed)")


def test_without_the_right_to_read_alarms_the_rest_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise arm.ArmError("Azure refused (AuthorizationFailed): no. Sign in as somebody with the role `Reader`.")

    monkeypatch.setattr("infra.operations.arm_alerts.firing", refuse)
    found = told(code=0)
    assert found["alarms"] is None
    assert found["not_told"][0].startswith("alarms: Azure refused (AuthorizationFailed)")


def test_over_ssh_azure_knows_of_no_bundle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "load_azure_plan", lambda _: plan("dev", access={"delivery": "ssh"}))
    node = told(code=0)["nodes"][0]
    assert (node["readiness"], node["bundle"], node["apply"], node["in_service"]) == ("not-told", None, None, True)


@pytest.mark.parametrize("words", [("-s", "nobody"), ("-s", "No Stack")])
def test_bad_input_is_one_sentence_and_exit_code_2(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, ["status", *words])
    assert done.exit_code != 0
    assert getattr(done.exception, "exit_code", None) == 2
