"""A stack whose bundles go over SSH lives like the others: hosts are simulated, too, and its key is made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.rehearsal import steps
from tests.engine.life import Life
from tests.unit.cloud_init.rendered import built
from tests.unit.stack_values import MODEL, changed, write


@pytest.fixture(scope="module")
def life(open_life: Callable[..., Life], tmp_path_factory: pytest.TempPathFactory) -> Life:
    root = write(tmp_path_factory.mktemp("ssh"), changed(access={"delivery": "ssh"}, nodes={"count": 1}))
    return open_life("dev", root)


def test_up_preview_prompt_and_destroy(life: Life) -> None:
    created = life.up()
    assert {name for name in created.touched() if name.startswith("huddleai-h100-node-1-ssh-")} == {
        f"huddleai-h100-node-1-ssh-{what}"
        for what in ("gate", "bundle", *(piece.name for piece in built("dev").pieces), "secrets", "prepare", "apply")
    }
    status = life.sandbox.stack.outputs()["node_status"].value
    assert [said.partition(" ")[0] for said in status.values()] == ["serving"]
    assert life.preview().touched() == {}
    life.edit(lambda settings: settings["serving"]["models"].update({MODEL: {"system_prompt": "Be brief."}}))
    assert steps._no_vm_touched(life.up(), life.sandbox) is None
    life.destroy()
    assert life.azure.resources == {}


def test_the_private_key_is_in_no_state_in_plain_text(life: Life) -> None:
    key = life.sandbox.secrets["ssh_private_key"]
    kept = [path for path in life.sandbox.directory.rglob("*") if path.is_file()]
    assert Path(life.sandbox.azure_state) in kept
    assert [str(path) for path in kept if key.encode() in path.read_bytes()] == []
