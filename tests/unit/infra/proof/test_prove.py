"""`infra prove` against ARM's stand-in: what is asked, what is written, and that nothing stays behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from huddle.errors import InputError
from infra import engine
from infra.cli.main import app
from infra.operations import arm, stack_outputs
from infra.proof import drift, evidence, requests, trial
from infra.proof.evidence import Reply
from simulator.azure.arm import serve
from simulator.azure.sdk.paths import SUBSCRIPTION
from simulator.azure.state.store import Resource, Store
from tests.unit.builders import plan
from tests.unit.infra.test_arm import running

GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{plan().names.resource_group}/providers"
VM = f"{GROUP}/Microsoft.Compute/virtualMachines/{plan().head.name}"
COMMANDS = ["huddle-prepare", "huddle-apply"]
RAN = {
    "parameters": [{"name": "HUDDLE_ATTEMPT", "value": "1"}],
    "instanceView": {"startTime": "12:00", "output": "credentials done in 3.0 s"},
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A subscription with the first node of `dev` and its commands."""
    found = Store(tmp_path / "azure.json")
    with found.transaction() as state:
        profile = {"securityProfile": {"securityType": "TrustedLaunch"}, "provisioningState": "Succeeded"}
        state.put(Resource(VM, "azure-native:compute:VirtualMachine", profile, location="eastus2"))
        kind = "azure-native:compute:VirtualMachineRunCommandByVirtualMachine"
        for name in COMMANDS:
            state.put(Resource(f"{VM}/runCommands/{name}", kind, RAN))
    monkeypatch.setenv("ARM_SUBSCRIPTION_ID", SUBSCRIPTION)
    with running(serve(found, page=1)) as endpoint:
        monkeypatch.setenv(arm.ENDPOINT_VARIABLE, endpoint)
        yield found


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["prove", *words])


def verdicts(text: str) -> dict[str, str]:
    return {one["id"]: one["verdict"] for one in json.loads(text)["answers"]}


def test_reading_alone_changes_nothing_and_says_what_it_did_not_ask(store: Store) -> None:
    before = store.read()
    done = run("-s", "dev", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["simulated"] is True
    found = verdicts(done.stdout)
    assert found["parameters-are-returned"] == found["role-delay"] == found["image-trusted-launch"] == "holds"
    assert found["changed-parameter-runs"] == found["refresh-is-empty"] == "not asked"
    assert found["gateway-name"] == "not asked", "there is no gateway yet"
    assert store.read() == before


def test_trying_runs_a_command_twice_and_takes_it_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_outputs, "with_secrets", lambda _: {})
    monkeypatch.setattr(drift, "changed", lambda _: ("watch-workbook",))
    done = run("-s", "dev", "--try", "--json")
    found = verdicts(done.stdout)
    assert found["changed-parameter-runs"] == found["equal-settings-stay"] == "holds"
    assert found["agent-period"] == "not told", "nothing runs on a simulated node"
    assert found["tokens-are-counted"] == "not asked", "the outputs hold no key"
    assert (found["refresh-is-empty"], done.exit_code) == ("does not hold", 1)
    assert [each.name for each in store.read().inside(VM)] == COMMANDS


def test_each_trial_has_a_name_of_its_own(store: Store) -> None:
    """A node remembers what ran under a name, also once the command is deleted."""
    with arm.connect() as azure:
        for _ in range(2):
            trial.run(azure, VM, "eastus2")
    with store.reading() as state:
        assert len(state.resources[VM.lower()].notes["runCommands"]) == 2


def test_a_node_that_does_not_run_is_a_reason_and_no_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_outputs, "with_secrets", lambda _: {})
    monkeypatch.setattr(drift, "changed", lambda _: ())
    with store.transaction() as state:
        state.resources[VM.lower()].notes["power"] = "deallocated"
    told = {one["id"]: one["seen"] for one in json.loads(run("-s", "dev", "--try", "--json").stdout)["answers"]}
    assert "when the VM is not running" in told["equal-settings-stay"]


def test_a_page_of_a_stand_in_never_looks_like_azures(store: Store, tmp_path: Path) -> None:
    page = tmp_path / "proof.md"
    assert run("-s", "dev", "--out", str(page)).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Simulated: what a stand-in said on 20")
    assert "No word of this is Azure's." in text
    assert "| **role-delay**: The node's role" in text
    error = run("-s", "dev", "--out", str(page)).exception
    assert isinstance(error, InputError)
    assert "is there already; name a new file" in str(error)


def test_a_command_that_never_ends_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_ended", lambda _: False)
    times = iter(range(0, 10_000, 400))
    with arm.connect() as azure, pytest.raises(arm.ArmError, match="not done with huddle-proof after 15 min"):
        trial.run(azure, VM, "eastus2", sleep=lambda _: None, clock=lambda: float(next(times)))
    assert [each.name for each in store.read().inside(VM)] == COMMANDS


def test_a_preview_names_what_it_would_change() -> None:
    steps = [("same", "a"), ("update", "watch-workbook"), ("refresh", "b"), ("create-replacement", "node-vm")]
    preview = {"steps": [{"op": op, "urn": f"urn:pulumi:dev::p::t::{name}"} for op, name in steps]}
    assert drift.touched(preview) == ("node-vm", "watch-workbook")


def pulumi_that(says: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pulumi that knows the one command which is asked for, and says this."""
    program = folder / "pulumi"
    program.write_text(
        f'#!/bin/sh\n[ "$*" = "preview --refresh --json --stack dev --non-interactive" ] || exit 9\n{says}\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr(engine, "locate", lambda: engine.PulumiEngine(program, None, None, engine.Origin.PATH, "9.0.0"))


def test_a_drift_is_asked_of_a_preview_that_refreshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = '{"steps": [{"op": "update", "urn": "urn:pulumi:dev::p::t::watch-workbook"}]}'
    pulumi_that(f"echo '{steps}'", tmp_path, monkeypatch)
    assert drift.changed("dev") == ("watch-workbook",)
    pulumi_that("echo 'error: no login' >&2; exit 255", tmp_path, monkeypatch)
    with pytest.raises(drift.PreviewError, match=r"^Pulumi gave no preview: error: no login$"):
        drift.changed("dev")


def test_two_requests_carry_the_key_and_bring_what_remains(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def answer(request: Any) -> Any:
        seen.append(request.headers.get("Ocp-Apim-Subscription-Key"))
        headers = {"X-RateLimit-Remaining-Tokens": str(100 - 12 * len(seen))}
        return requests.httpx2.Response(200, headers=headers, json={"usage": {"total_tokens": 12}})

    real = requests.httpx2.Client
    transport = requests.httpx2.MockTransport(answer)
    monkeypatch.setattr(requests.httpx2, "Client", lambda **options: real(transport=transport, **options))
    outputs = {"product_keys": {"web/app": "k1"}, "openai_base_url": "https://gateway.example/v1", "models": ["hl"]}
    first, second = requests.twice(outputs)
    assert seen == ["k1", "k1"]
    assert isinstance(first, Reply)
    assert (first.tokens, first.headers["x-ratelimit-remaining-tokens"]) == (12, "88")
    assert second.headers["x-ratelimit-remaining-tokens"] == "76"


def test_what_was_not_read_ends_in_its_reason() -> None:
    with pytest.raises(evidence.NotReadError, match="no Bastion"):
        evidence.known(evidence.Unread("no Bastion"))
