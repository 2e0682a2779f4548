"""The `infra` command line: what it prints, and exit code 2 with one sentence for whatever a person can correct."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from huddle.errors import InputError
from infra import program
from infra.cli.main import app
from infra.program import load_plan
from infra.rehearsal import command as rehearse
from infra.rehearsal.runner import Rehearsal
from infra.rehearsal.sandbox import Sandbox
from infra.rehearsal.screen import show_summary
from plan import stack_file
from tests.unit.stack_values import changed, write
from tools.deadlines import scaled

INFRA = [sys.executable, "-m", "infra.cli.main"]


def infra(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*INFRA, *arguments], capture_output=True, text=True, check=False, timeout=scaled(120), cwd=stack_file.ROOT
    )


@pytest.mark.parametrize("stack", stack_file.names())
def test_every_stack_is_valid(stack: str) -> None:
    done = infra("validate", "-s", stack)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"warning: {warning}" for warning in program.warnings(stack)]
    assert "access.ssh_public_keys[0] is the example key; nobody holds it" in done.stderr
    nodes = "1 x Standard_L8s_v3" if stack == "proof" else "2 x Standard_NC40ads_H100_v5"
    assert done.stdout.startswith(f"stacks/Pulumi.{stack}.yaml is valid: {nodes} in eastus2")


def test_plan_as_json_holds_what_the_plan_says() -> None:
    document = json.loads(infra("plan", "-s", "dev", "--json").stdout)
    plan = load_plan("dev")
    assert [node["name"] for node in document["nodes"]] == [node.name for node in plan.nodes]
    assert document["names"]["gateway"] == plan.names.gateway


@pytest.mark.parametrize("command", ["plan", "ports", "cost", "tree"])
def test_views_are_readable_without_a_terminal_and_without_colour_codes(command: str) -> None:
    done = infra(command, "-s", "dev")
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout
    assert len(done.stdout.splitlines()) > 5


def test_ports_as_json_is_the_port_table() -> None:
    rows = json.loads(infra("ports", "-s", "dev", "--json").stdout)
    assert {row["name"] for row in rows} == {flow.name for flow in load_plan("dev").port_table}


def test_tree_as_json_names_every_resource_once() -> None:
    rows = json.loads(infra("tree", "-s", "dev", "--json").stdout)
    urns = [row["urn"] for row in rows]
    assert len(urns) == len(set(urns))
    assert sum(row["type"] == "azure-native:compute:VirtualMachine" for row in rows) == 2


@pytest.mark.parametrize("command", ["validate", "plan", "ports", "cost", "tree", "rehearse"])
def test_a_missing_stack_is_one_sentence_and_exit_code_2(command: str) -> None:
    done = infra(command, "-s", "devv")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: stacks/Pulumi.devv.yaml: there is no such stack; did you mean dev? stacks here: dev, prod, proof\n"
    )


@pytest.mark.parametrize("name", ["Dev", "my.stack", "-x", "a b", "x" * 31, "", "üml"])
def test_a_stack_name_that_azure_could_not_tell_apart_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not allowed as a stack's name; allowed: lower-case letters"):
        load_plan(name)


def test_a_refused_stack_hears_of_its_warnings_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"environment": "prod", "nodes": {"priority": "spot", "count": 3}}
    root, load, warn = write(tmp_path, changed(**changes)), program.load_plan, program.warnings
    monkeypatch.setattr(program, "load_plan", lambda stack: load(stack, root))
    monkeypatch.setattr(program, "warnings", lambda stack: warn(stack, root))
    told = CliRunner().invoke(app, ["validate"])
    assert told.exit_code == 2
    assert "nodes.count: 3 x Standard_NC40ads_H100_v5 needs 120 vCPUs of lowPriorityCores" in told.stderr
    assert "warning: nodes.priority: Azure may evict spot nodes at any time, and environment is prod" in told.stderr
    document = json.loads(CliRunner().invoke(app, ["validate", "--json"]).stdout)
    assert [fault["key"] for fault in document["faults"]] == ["nodes.count"]
    assert any(warning.startswith("nodes.priority: ") for warning in document["warnings"])


def test_validate_as_json_carries_the_warnings() -> None:
    document = json.loads(infra("validate", "-s", "dev", "--json").stdout)
    assert document == {"faults": [], "warnings": program.warnings("dev")}
    assert "access.ssh_public_keys[0] is the example key; nobody holds it" in document["warnings"]


def test_an_empty_fault_file_means_a_good_day(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, "dev", _StackWithVariables(), {}, None)  # type: ignore[arg-type]
    sandbox.set_faults(load_plan("dev"), "\n")
    assert sandbox.stack.workspace.env_vars["AZURE_SIMULATOR_FAULTS"].startswith("quota:")


class _StackWithVariables:
    """The one part of an automation stack that faults touch."""

    def __init__(self) -> None:
        self.workspace = SimpleNamespace(env_vars={})


def test_a_wrong_fault_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults: [{kind: earthquake}]\n")
    done = infra("rehearse", "-s", "dev", "--faults", str(faults))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {faults}: faults[0].kind: 'earthquake'")
    assert "quota" in done.stderr, "it says what is allowed"


def test_a_directory_that_is_not_empty_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    done = infra("rehearse", "-s", "dev", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_a_fault_file_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_text("\n")
    for name, reason in ((".", "can't be read: Is a directory"), ("binary", "it is not UTF-8"), ("empty", "is empty")):
        with pytest.raises(InputError, match=reason):
            rehearse.run("dev", tmp_path / "kept", console=Console(), faults=tmp_path / name)
        assert not (tmp_path / "kept").exists()


def test_a_place_to_keep_things_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, reason in ((tmp_path / "file", "is no directory"), (tmp_path / "file" / "below", "can't be made")):
        done = CliRunner().invoke(app, ["rehearse", "-s", "dev", "--keep", str(place)])
        assert isinstance(done.exception, InputError)
        assert reason in str(done.exception)


def test_the_summary_says_how_a_stack_from_elsewhere_comes_to_azure() -> None:
    console, plan = Console(width=200, record=True), load_plan("dev")
    for own in (True, False):
        show_summary(console, plan, Rehearsal(), None, own=own)
    first, second = console.export_text().split("The whole life of")[1:]
    assert "the same program is: make up STACK=dev" in first
    assert "once Pulumi.dev.yaml is copied to stacks/: make up STACK=dev" in second
