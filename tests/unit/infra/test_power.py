"""`infra start` on the simulated subscription: deallocated nodes run again, and what Azure refuses is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from huddle.errors import InputError
from infra.cli.main import app
from infra.operations import api_versions, arm, failures, power, stack_state
from simulator.azure.arm import serve
from simulator.azure.state.store import Resource, Store
from tests.unit.infra.test_arm import running
from tests.unit.stack_values import plan

VM = "azure-native:compute:VirtualMachine"
SUBSCRIPTION = "/subscriptions/6f3c2a10-0000-4000-8000-000000000001"
NODES = {
    node.name: f"{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/{node.name}"
    for node in plan().nodes
}
FIRST, SECOND = NODES


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A subscription in which both nodes run."""
    azure = Store(tmp_path / "azure.json")
    with azure.transaction() as state:
        for vm_id in NODES.values():
            state.put(Resource(vm_id, VM, {}, location="eastus2", notes={"power": "running"}))
    return azure


@pytest.fixture
def endpoint(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where it answers, also for commands of the dev stack."""
    monkeypatch.setattr(stack_state, "known_ids", lambda stack: stack_state.ids_in(json.dumps(NODES)))
    monkeypatch.setattr(power, "PAUSE_S", 0.0)
    with running(serve(store)) as url:
        monkeypatch.setenv(arm.ENDPOINT_VARIABLE, url)
        yield url


def deallocate(endpoint: str, *names: str) -> None:
    """What the nightly stop does, or an eviction."""
    with arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as azure:
        for name in names:
            azure.begin(NODES[name], "deallocate", api_versions.COMPUTE)


def test_a_deallocated_node_runs_again_and_the_other_is_left_alone(endpoint: str, store: Store) -> None:
    deallocate(endpoint, SECOND)
    before = store.read().resources[NODES[FIRST].lower()]
    told = CliRunner().invoke(app, ["start"])
    assert told.exit_code == 0
    assert told.stdout.splitlines() == [
        f"{FIRST}: ran already",
        f"{SECOND}: was deallocated, is running",
        "They apply their bundle by themselves and serve again once their models are loaded.",
    ]
    after = store.read().resources
    assert after[NODES[SECOND].lower()].notes["power"] == "running"
    assert after[NODES[FIRST].lower()] == before


def test_a_node_that_somebody_deleted_keeps_no_other_from_starting(endpoint: str, store: Store) -> None:
    deallocate(endpoint, SECOND)
    with store.transaction() as azure:
        del azure.resources[NODES[FIRST].lower()]
    told = CliRunner().invoke(app, ["start"])
    assert told.exit_code == 1
    assert told.stdout.splitlines()[0].startswith(f"{FIRST}: was gone, is gone. Azure refused (ResourceNotFound)")
    assert told.stdout.splitlines()[1] == f"{SECOND}: was deallocated, is running"


def test_azure_is_asked_every_few_seconds_and_not_without_a_pause(endpoint: str) -> None:
    deallocate(endpoint, SECOND)
    pauses: list[float] = []
    with arm.connect({arm.ENDPOINT_VARIABLE: endpoint}) as azure:
        power.start(azure, NODES, sleep=pauses.append)
    assert pauses == [power.PAUSE_S], "the stand-in is not done when it is asked for the first time"


def test_the_same_as_json(endpoint: str) -> None:
    deallocate(endpoint, FIRST, SECOND)
    told = CliRunner().invoke(app, ["start", "--json"])
    assert json.loads(told.stdout)["nodes"] == [
        {"name": name, "was": "deallocated", "now": "running", "refusal": None} for name in NODES
    ]
    assert all(
        node["was"] == "running" for node in json.loads(CliRunner().invoke(app, ["start", "--json"]).stdout)["nodes"]
    )


@pytest.mark.parametrize("known", [frozenset(), frozenset({f"{NODES[FIRST].lower()}/runcommands/huddle-apply"})])
def test_a_stack_without_nodes_is_told_the_next_step(monkeypatch: pytest.MonkeyPatch, known: frozenset[str]) -> None:
    monkeypatch.setattr(stack_state, "known_ids", lambda stack: known)
    with pytest.raises(InputError, match=r"no node of it is there .*; run `make up STACK=dev` first"):
        stack_state.node_ids("dev", NODES)


def test_a_first_up_that_failed_at_the_second_node_has_the_first_one_started(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_state, "known_ids", lambda stack: frozenset({NODES[FIRST].lower()}))
    deallocate(endpoint, FIRST)
    told = CliRunner().invoke(app, ["start"])
    assert (told.exit_code, told.stdout.splitlines()[0]) == (0, f"{FIRST}: was deallocated, is running")


def test_a_bundle_for_a_node_that_does_not_run_names_the_command() -> None:
    said = "Code='OperationNotAllowed' Message='Cannot modify extensions in the VM when the VM is not running.'"
    failure = failures.explain(said, plan())
    assert failure is not None
    assert failure.next_step == "Run `infra start -s dev`, then `up` again."


def refusing(answers: dict[tuple[str, str], tuple[int, dict[str, Any]]]) -> ThreadingHTTPServer:
    """An Azure that answers by method and last part of the path; a start is begun where it says nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            path = self.path.partition("?")[0]
            status, body = answers.get((self.command, path.rpartition("/")[2]), (202, {}))
            content = json.dumps(body).encode()
            self.send_response(status)
            if status == 202:
                self.send_header("Azure-AsyncOperation", f"http://{self.headers['Host']}/operations/one?api-version=1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _respond  # noqa: N815 - the library's names

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


STOPPED = (200, {"statuses": [{"code": "ProvisioningState/succeeded"}, {"code": "PowerState/deallocated"}]})
NO_ROOM = {"code": "AllocationFailed", "message": "We do not have sufficient capacity for the requested VM size."}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            {("GET", "one"): (200, {"status": "Failed", "error": NO_ROOM})},
            "Azure refused (AllocationFailed): We do not have sufficient capacity for the requested VM size.",
        ),
        (
            {("POST", "start"): (403, {"error": {"code": "AuthorizationFailed", "message": "no"}})},
            "Azure refused (AuthorizationFailed): no. Sign in as somebody with the role `Virtual Machine Contributor` "
            "on the nodes.",
        ),
        ({("GET", "one"): (200, {"status": "InProgress"})}, "Azure has not started it within 15 minutes"),
    ],
)
def test_what_azure_refuses_is_told_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, answers: dict[tuple[str, str], tuple[int, dict[str, Any]]], said: str
) -> None:
    monkeypatch.setattr(stack_state, "known_ids", lambda stack: stack_state.ids_in(json.dumps(NODES)))
    monkeypatch.setattr(power, "PAUSE_S", 0.0)
    monkeypatch.setattr(power, "DEADLINE_S", 0.0)
    with running(refusing({("GET", "instanceView"): STOPPED, **answers})) as url:
        monkeypatch.setenv(arm.ENDPOINT_VARIABLE, url)
        told = CliRunner().invoke(app, ["start"])
    assert told.exit_code == 1
    assert said in told.stdout
    assert "error: 2 of 2 nodes did not start; run the command again later" in told.stderr
