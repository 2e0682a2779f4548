"""Delivery over SSH, as registered: one gate, nothing secret in sight, nothing that a lost host could fail."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from cloud_init import bundle
from infra.targets import azure
from infra.targets.azure import delivery
from plan.azure.model import AzurePlan
from simulator.plugin.values import UNKNOWN, Secret, reveal
from tests.unit import stack_values
from tests.unit.azure_outputs import CANARY
from tests.unit.cloud_init.rendered import built
from tests.unit.recording import Recorded, Recording, assert_no_canary_outside_secrets, run_program

COMMAND, COPY = "command:remote:Command", "command:remote:CopyToRemote"
RUN_COMMAND = "compute:VirtualMachineRunCommandByVirtualMachine"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHme63GahSa9lKt98hTj1C7LJL2GzfURKGFi1h5Gcbfd"


@cache
def plan() -> AzurePlan:
    return stack_values.plan(access={"delivery": "ssh"})


@pytest.fixture(autouse=True)
def cache_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def recording(preview: bool) -> Recording:
    return recording_of(preview)


@cache
def recording_of(preview: bool) -> Recording:
    def program() -> Mapping[str, Any]:
        azure.deploy(plan())
        return {}

    outputs = {COMMAND: lambda _: {"stdout": f'{KEY}\n{{"state": "serving"}}', "stderr": ""}}
    return run_program(program, preview=preview, outputs=outputs)


def of_node(recording: Recording, kind: str, node: int = 1) -> dict[str, Recorded]:
    prefix = f"huddleai-h100-node-{node}-ssh-"
    found = [one for one in recording.resources if one.type == kind and one.name.startswith(prefix)]
    return {one.name.removeprefix(prefix): one for one in found}


def test_each_node_has_one_gate_its_copies_and_no_run_command(recording: Recording) -> None:
    for node in (1, 2):
        assert set(of_node(recording, COMMAND, node)) == {"gate", "secrets", "prepare", "apply"}
        assert set(of_node(recording, COPY, node)) == {"bundle", *(piece.name for piece in built("dev").pieces)}
    assert not [one for one in recording.resources if RUN_COMMAND in one.type]


def test_only_the_gate_dials_without_end_and_under_a_deadline() -> None:
    commands = of_node(recording_of(False), COMMAND)
    limits = {name: reveal(one.inputs["connection"])["dialErrorLimit"] for name, one in commands.items()}
    assert limits == {"gate": -1, "secrets": 10, "prepare": 10, "apply": 10}
    assert commands["gate"].request.customTimeouts.create == "30m"
    assert "hostKey" not in reveal(commands["gate"].inputs["connection"])
    for name in ("secrets", "prepare", "apply"):
        assert "hostKey" in reveal(commands[name].inputs["connection"])


def test_secrets_are_on_stdin_only_and_are_never_logged(recording: Recording) -> None:
    assert_no_canary_outside_secrets(recording)
    commands = of_node(recording, COMMAND)
    assert {name: one.inputs["logging"] for name, one in commands.items()} == {
        "gate": "none",
        "secrets": "none",
        "prepare": "stderr",
        "apply": "stderr",
    }
    assert isinstance(commands["secrets"].inputs["stdin"], Secret)
    assert "stdin" not in commands["gate"].inputs | commands["apply"].inputs
    for one in commands.values():
        assert isinstance(one.inputs["connection"], Secret)
        assert one.inputs["addPreviousOutputInEnv"] is False
        assert CANARY not in one.inputs["create"]


def test_nothing_is_run_when_a_host_goes(recording: Recording) -> None:
    for one in of_node(recording, COMMAND).values():
        assert "delete" not in one.inputs


def test_apply_runs_again_for_another_machine_bundle_or_secret_and_for_no_other_reason() -> None:
    apply = of_node(recording_of(False), COMMAND)["apply"]
    machine, digest, secrets = apply.inputs["triggers"]
    assert reveal(digest) == bundle.build(plan()).digest
    assert isinstance(secrets, Secret)
    assert machine is not UNKNOWN
    assert of_node(recording_of(False), COMMAND)["gate"].inputs["triggers"] == [machine]


def test_parts_are_copied_once_for_a_machine_and_the_bundle_waits_for_them(recording: Recording) -> None:
    built, copies = bundle.build(plan()), of_node(recording, COPY)
    assert set(copies) == {"bundle", *(piece.name for piece in built.pieces)}
    apply, prepare, gate = (of_node(recording, COMMAND)[name] for name in ("apply", "prepare", "gate"))
    for piece in built.pieces:
        copy = copies[piece.name]
        assert piece.digest in copy.inputs["remotePath"]
        assert copy.inputs["triggers"] == gate.inputs["triggers"], (
            "another machine gets it again, another bundle does not"
        )
        assert f"/opt/huddle/parts/{piece.relative}" in prepare.inputs["create"]
        assert recording.waits_for(copy, gate)
        assert recording.waits_for(prepare, copy)
    assert recording.waits_for(apply, prepare)


def test_each_node_prepares_at_once_and_applies_in_its_turn(recording: Recording) -> None:
    first, second = (of_node(recording, COMMAND, number) for number in (1, 2))
    assert recording.waits_for(second["apply"], first["apply"])
    assert not recording.waits_for(second["prepare"], first["apply"])
    assert not recording.waits_for(first["apply"], second["apply"])


def test_the_archive_outlives_the_program_and_is_written_once(tmp_path: Any) -> None:
    built = bundle.build(plan())
    path = delivery.archive_file(built, tmp_path)
    first = path.stat().st_ino
    assert path.read_bytes() == built.archive
    assert delivery.archive_file(built, tmp_path).stat().st_ino == first
    for piece in built.pieces:
        assert delivery.piece_files(built, tmp_path)[piece.name].read_bytes() == piece.content
    path.write_bytes(b"cut off")
    assert delivery.archive_file(built, tmp_path).read_bytes() == built.archive
