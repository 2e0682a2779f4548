"""Day 0: small, valid, and the same whatever is served."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloud_init import user_data as render
from tests.unit import stack_values
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import KINDS, plans

AZURE_LIMIT_BYTES = 65_535


def config(kind: str, number: int = 0) -> dict[str, Any]:
    plan = plans()[kind]
    return yaml.safe_load(render.user_data(plan, plan.nodes[number], plan.compute.login))


def written(kind: str) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in config(kind)["write_files"]}


@pytest.mark.parametrize("kind", KINDS)
def test_cloud_init_accepts_it(kind: str, tmp_path: Path) -> None:
    plan = plans()[kind]
    for node in plan.nodes:
        path = tmp_path / f"{node.name}.yaml"
        path.write_text(render.user_data(plan, node, plan.compute.login), encoding="utf-8")
        done = subprocess.run(
            ["cloud-init", "schema", "--config-file", str(path)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "deprecat" not in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize("kind", KINDS)
def test_custom_data_is_base64_within_azures_limit(kind: str) -> None:
    plan = plans()[kind]
    for node in plan.nodes:
        encoded = render.custom_data(plan, node, plan.compute.login)
        assert base64.b64decode(encoded, validate=True).decode() == render.user_data(plan, node, plan.compute.login)
        assert len(encoded) < AZURE_LIMIT_BYTES
        assert len(encoded) < 24_000, "day 0 should stay small; put it into the bundle"


def test_refuses_what_azure_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "user_data", lambda plan, node, login: "#" * AZURE_LIMIT_BYTES)
    plan = plans()["dev"]
    with pytest.raises(
        render.CustomDataTooLargeError, match=r"huddleai-h100-node-1 has 87380 bytes; Azure allows 65535"
    ):
        render.custom_data(plan, plan.nodes[0], plan.compute.login)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"serving": {"models": {rendered.OTHER_MODEL: {}}}}, id="another model"),
        pytest.param({"serving": {"models": {rendered.MODEL: {"system_prompt": "Be brief."}}}}, id="another prompt"),
        pytest.param({"serving": {"ports": {"wrapper": 8100, "vllm": 5006, "ray_gcs": 6300}}}, id="other ports"),
        pytest.param({"serving": {"topology": "distributed"}}, id="another topology"),
        pytest.param({"nodes": {"count": 3, "quota_vcpus": 120}}, id="a node more"),
        pytest.param({"jupyter": {"enabled": True}}, id="JupyterLab"),
        pytest.param({"gateway": {"products": {"more": {"display_name": "More"}}}}, id="another product"),
        pytest.param({"gateway": {"tier": "PremiumV2"}}, id="another gateway"),
        pytest.param({"monitoring": {"retention_days": 90}}, id="another retention"),
        pytest.param({"tags": {"owner": "somebody"}}, id="other tags"),
    ],
)
def test_stays_the_same_when_what_runs_on_the_node_changes(changes: dict[str, Any]) -> None:
    for number in (0, 1):
        assert rendered.custom_data(number, **changes) == rendered.custom_data(number)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"name_prefix": "other"}, id="another name"),
        pytest.param({"network": {"nodes_subnet": "10.0.8.0/24"}}, id="another address"),
        pytest.param({"access": {"ssh_public_keys": [f"{stack_values.KEY}er"]}}, id="another key"),
        pytest.param({"model_store": stack_values.FILES}, id="another store"),
    ],
)
def test_follows_what_belongs_to_the_machine(changes: dict[str, Any]) -> None:
    assert rendered.custom_data(**changes) != rendered.custom_data()


def test_a_node_knows_its_own_name_by_its_private_address() -> None:
    for number, address in enumerate(("10.0.0.4", "10.0.0.5")):
        name = f"huddleai-h100-node-{number + 1}"
        found = config("dev", number)
        hosts = next(file["content"] for file in found["write_files"] if file["path"] == "/etc/hosts")
        assert found["hostname"] == name
        assert found["manage_etc_hosts"] is False
        assert f"{address} {name}\n" in hosts
        assert [line for line in hosts.splitlines() if name in line] == [f"{address} {name}"]
        assert "127.0.1.1" not in hosts


def test_operators_log_in_with_keys_only() -> None:
    found = config("dev")
    admin, service = found["users"]
    assert admin["name"] == "azureuser"
    assert admin["ssh_authorized_keys"] == list(plans()["dev"].compute.ssh_public_keys)
    assert found["ssh_pwauth"] is False
    assert found["disable_root"] is True
    assert admin["lock_passwd"] is True
    assert service == {
        "name": "huddle",
        "gecos": "huddle services",
        "system": True,
        "no_create_home": True,
        "shell": "/usr/sbin/nologin",
        "lock_passwd": True,
    }


def test_azures_temporary_disk_is_not_mounted_over_mnt() -> None:
    assert config("dev")["mounts"] == [["ephemeral0"]]


def test_apt_waits_for_its_lock_and_brings_no_extras() -> None:
    found = config("dev")
    assert 'DPkg::Lock::Timeout "600";' in found["apt"]["conf"]
    assert 'APT::Install-Recommends "false";' in found["apt"]["conf"]
    assert found["package_upgrade"] is False


def test_packages_follow_the_model_store() -> None:
    assert config("dev")["packages"] == ["bzip2", "mdadm", "nftables", "python3-venv", "xfsprogs"]
    assert config("azure-files")["packages"] == ["bzip2", "mdadm", "nfs-common", "nftables", "python3-venv", "xfsprogs"]


def test_the_shared_disk_is_mounted_read_only_without_replaying_its_journal() -> None:
    files = written("dev")
    mount = files["/etc/systemd/system/mnt-models.mount"]["content"]
    assert "Options=ro,noload," in mount
    assert "Type=ext4" in mount
    rules = files["/etc/udev/rules.d/99-huddle-models.rules"]["content"]
    assert 'SYMLINK=="disk/azure/scsi1/lun0"' in rules
    assert 'SYMLINK=="disk/azure/data/by-lun/0"' in rules


def test_azure_files_is_mounted_over_nfs() -> None:
    files = written("azure-files")
    mount = files["/etc/systemd/system/mnt-models.mount"]["content"]
    account = plans()["azure-files"].names.storage_account
    assert f"What={account}.file.core.windows.net:/{account}/models\n" in mount
    assert "Type=nfs\nOptions=vers=4.1," in mount
    assert "/etc/udev/rules.d/99-huddle-models.rules" not in files


@pytest.mark.parametrize("kind", KINDS)
def test_programs_are_executable_and_nothing_else_is(kind: str) -> None:
    for path, file in written(kind).items():
        assert file["permissions"] == ("0755" if file["content"].startswith("#!") else "0644"), path


@pytest.mark.parametrize("kind", KINDS)
def test_every_shell_program_passes_shellcheck_and_parses(kind: str, tmp_path: Path) -> None:
    programs = {
        path: file["content"] for path, file in written(kind).items() if file["content"].startswith("#!/bin/bash")
    }
    assert len(programs) == 2
    rendered.write({path: text.encode() for path, text in programs.items()}, tmp_path)
    paths = [str(tmp_path / path.lstrip("/")) for path in programs]
    checked = subprocess.run(["shellcheck", "--severity=style", *paths], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    bash = shutil.which("bash")
    assert bash
    for path in paths:
        subprocess.run([bash, "-n", path], check=True)


def test_commands_call_only_what_day_zero_brings() -> None:
    found = config("dev")
    paths = {file["path"] for file in found["write_files"]}
    ours = {word for command in found["runcmd"] for word in command[:1] if word.startswith("/opt/huddle")}
    units = {word for command in found["runcmd"] for word in command if word.endswith((".service", ".mount"))}
    assert ours <= paths
    assert {f"/etc/systemd/system/{unit}" for unit in units} <= paths
