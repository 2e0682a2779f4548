"""The scripts of delivery over SSH: sound shell, and any secret arrives as it was."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloud_init.delivery import ssh as over_ssh
from cloud_init.huddle_apply.installed import credentials
from cloud_init.templating import render
from tests.unit.cloud_init.rendered import built, plans

NODE = plans()["dev"].nodes[0]
PIECES = {"/var/tmp/huddle-package-1a2b": "/opt/huddle/parts/package/1a2b"}
VALUES = {"pieces": PIECES, "program": "/opt/huddle/bin/huddle-apply", "copied": "/tmp/x", "deadline_s": 480}


@pytest.mark.parametrize("name", ["gate", "secrets", "prepare", "apply"])
def test_shellcheck_finds_nothing(name: str) -> None:
    text = render(
        f"ssh/{name}.sh.j2", node=NODE, bundle=built("dev"), folder="/etc/x", keep_previous=["backend_key"], **VALUES
    )
    done = subprocess.run(["shellcheck", "--shell=bash", "-"], input=text, capture_output=True, text=True, check=False)
    assert done.stdout == ""


def test_each_command_is_one_line_of_a_shell_that_becomes_root_and_knows_the_connection() -> None:
    scripts = over_ssh.scripts(NODE, built("dev"))
    for command in (scripts.gate, scripts.secrets, scripts.prepare, scripts.apply):
        first = command.partition("\n")[0]
        assert first.startswith('sudo=; [ "$(id -u)" -eq 0 ] || sudo="sudo -n"; exec $sudo env SSH_CONNECTION=')
        assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
    assert built("dev").digest in scripts.archive_path
    assert f"{built('dev').digest} --prepare" in scripts.prepare
    assert built("dev").digest in scripts.apply and "--prepare" not in scripts.apply


def test_a_reboot_leaves_what_was_copied() -> None:
    """Between the copy and its application a node may restart; systemd empties `D` directories at boot."""
    rules = subprocess.run(["systemd-tmpfiles", "--cat-config"], capture_output=True, text=True, check=True).stdout
    emptied = {line.split()[1] for line in rules.splitlines() if line.startswith("D")}
    assert "/tmp" in emptied
    assert str(Path(over_ssh.scripts(NODE, built("dev")).archive_path).parent) not in emptied


NAMES = st.sampled_from(["backend_key", "ray_token", "model_hub_token"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80)


@given(secrets=st.dictionaries(NAMES, TEXTS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_any_secret_arrives_as_it_was_and_for_root_only(tmp_path: Path, secrets: dict[str, str]) -> None:
    folder = tmp_path / "credentials"
    shutil.rmtree(folder, ignore_errors=True)
    script = render("ssh/secrets.sh.j2", folder=folder, keep_previous=["backend_key"])
    done = subprocess.run(
        ["bash", "-c", script], input=over_ssh.stdin_of(secrets), capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    for name, value in secrets.items():
        assert (folder / name).read_bytes() == value.encode()
        assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_the_key_before_counts_until_the_next_as_on_a_node_that_asks_a_vault(tmp_path: Path) -> None:
    script = render("ssh/secrets.sh.j2", folder=tmp_path, keep_previous=["backend_key"])
    known = ""
    for value in ("first", "first", "second", "second", "third", "two words", "third"):
        given = over_ssh.stdin_of({"backend_key": value, "ray_token": value})
        subprocess.run(["bash", "-c", script], input=given, text=True, check=True)
        known = credentials.with_previous(value, known)
        assert (tmp_path / "backend_key").read_text(encoding="utf-8") == known
        assert (tmp_path / "ray_token").read_text(encoding="utf-8") == value
        assert {path.name for path in tmp_path.iterdir()} == {"backend_key", "ray_token"}
