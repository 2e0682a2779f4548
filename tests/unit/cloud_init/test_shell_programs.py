"""The bundle's shell programs: clean under shellcheck, and doing what they say with pretended commands on PATH."""

from __future__ import annotations

import base64
import os
import re
import socket
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from cloud_init.delivery import run_command
from cloud_init.templating import text
from tests.unit.cloud_init import rendered
from tests.unit.cloud_init.rendered import KINDS, built, plans

HEAD, WORKER = "huddleai-h100-node-1", "huddleai-h100-node-2"


@pytest.mark.parametrize("kind", KINDS)
def test_every_shell_program_of_a_bundle_passes_shellcheck(kind: str, tmp_path: Path) -> None:
    programs = {path: content for path, content in built(kind).files.items() if content.startswith(b"#!/bin/bash")}
    commands = {f"bin/{name}" for name in ("huddle-hold", "huddle-ray", "huddle-ray-guard")}
    assert commands | {"rootfs/opt/huddle/bin/huddle-nvme"} <= set(programs)
    rendered.write({**programs, **_script(kind)}, tmp_path)
    paths = [str(tmp_path / path) for path in (*programs, *_script(kind))]
    done = subprocess.run(["shellcheck", "--severity=style", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    for path in paths:
        subprocess.run(["bash", "-n", path], check=True)


def _script(kind: str) -> dict[str, bytes]:
    plan = plans()[kind]
    node, bundle = plan.nodes[0], built(kind)
    pieces = {f"{piece.name}.sh": run_command.piece_script(piece).encode() for piece in bundle.pieces}
    apply = run_command.apply_script(plan, node, bundle, rendered.SECRETS)
    return {"prepare.sh": rendered.script(plan, node, bundle).encode(), "apply.sh": apply.encode(), **pieces}


def test_the_run_command_carries_the_archive_and_no_secret() -> None:
    script = _script("dev")["prepare.sh"].decode()
    body = re.search(r"<<'BASE85'\n(.*)\nBASE85\n", script, re.DOTALL)
    assert body
    assert sha256(base64.b85decode("".join(body[1].split()))).hexdigest() == built("dev").digest
    program = f"exec /opt/huddle/bin/huddle-apply {built('dev').digest}"
    source = f"--vault-uri {rendered.VAULT_URI} --identity-client-id {rendered.CLIENT_ID}"
    assert script.splitlines()[-1] == f"{program} --prepare {source}"
    assert _script("dev")["apply.sh"].decode().splitlines()[-1] == f"{program} {source}"


def test_the_run_command_lays_the_archive_down_as_it_was(tmp_path: Path) -> None:
    """Run as it is, in another place, as far as the archive goes."""
    script = _script("dev")["prepare.sh"].decode().replace("/var/lib/huddle/incoming", str(tmp_path))
    unpacking, waiting, _ = script.partition("if [ ! -e /run/cloud-init/")
    assert waiting, "the script goes on with what is not for this machine"
    subprocess.run(["bash"], input=unpacking, text=True, check=True)
    (archive,) = tmp_path.iterdir()
    assert archive.name == f"huddle-{built('dev').digest}.tar.bz2"
    assert archive.read_bytes() == built("dev").archive


def test_values_in_the_run_command_are_quoted() -> None:
    plan = plans()["dev"]
    for render in (run_command.prepare_script, run_command.apply_script):
        script = render(plan, plan.nodes[0], built("dev"), run_command.SecretSource("https://x/; reboot", "$(id)"))
        assert script.splitlines()[-1].endswith("--vault-uri 'https://x/; reboot' --identity-client-id '$(id)'")


@pytest.mark.parametrize("template", ["apply/run-command-prepare.sh.j2", "ssh/gate.sh.j2"])
def test_a_machine_whose_day_0_failed_says_so_last(template: str) -> None:
    """Azure shows the end of stderr, and `infra` the end of that: the sentence must not stand before the log."""
    branch = text(template).partition("if [ ! -x {{ program }} ]; then\n")[2].partition("\nfi\n")[0]
    *_, log, sentence, end = branch.splitlines()
    assert "cloud-init-output.log" in log and "-c 2048" in log
    assert sentence.strip().startswith('echo "huddle: day 0 did not finish') and end.strip() == "exit 1"


class Programs:
    """Pretended commands, and an environment in which they come first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "FAKE": str(folder)}

    def add(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(self, template: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = self.folder / Path(template).name
        path.write_text(text(template), encoding="utf-8")
        return subprocess.run(
            ["bash", str(path)], env={**self.environment, **environment}, capture_output=True, text=True, check=False
        )


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


def ray_environment(host: str, **changes: str) -> dict[str, str]:
    lines = built("distributed").files[f"nodes/{host}/ray.env"].decode().splitlines()
    return {
        **dict(line.split("=", 1) for line in lines),
        "CREDENTIALS_DIRECTORY": "/creds",
        "RAY_TMPDIR": "/t",
        **changes,
    }


class TestRay:
    """huddle-ray: one cluster, one address, every port named."""

    @pytest.fixture(autouse=True)
    def commands(self, programs: Programs) -> None:
        line = "7: eth9    inet 10.0.0.4/24 brd 10.0.0.255 scope global eth9"
        programs.add("ip", f'[[ "$*" != *10.0.0.4/32* ]] || echo "{line}"')
        programs.add("ray", 'printf "%s\\n" "$@"; env | grep -E "^(NCCL|GLOO|RAY_AUTH)_" | sort')

    def words(self, done: subprocess.CompletedProcess[str]) -> list[str]:
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def test_the_head(self, programs: Programs) -> None:
        words = self.words(programs.run("bin/huddle-ray", **ray_environment(HEAD)))
        assert words[:2] == ["start", "--head"]
        assert "--block" in words
        assert "--node-ip-address=10.0.0.4" in words
        assert "--port=6379" in words
        assert "--dashboard-host=127.0.0.1" in words
        assert "--min-worker-port=20000" in words
        assert "--max-worker-port=20999" in words
        assert words[-5:] == [
            "GLOO_SOCKET_IFNAME=eth9",
            "NCCL_IB_DISABLE=1",
            "NCCL_SOCKET_IFNAME=eth9",
            "RAY_AUTH_MODE=token",
            "RAY_AUTH_TOKEN_PATH=/creds/ray_token",
        ]

    def test_a_worker_joins_the_gcs_port_once_the_head_listens(self, programs: Programs) -> None:
        with socket.create_server(("127.0.0.1", 0)) as head:
            port = str(head.getsockname()[1])
            environment = ray_environment(HEAD, HUDDLE_ROLE="worker", RAY_HEAD_IP="127.0.0.1", RAY_GCS_PORT=port)
            words = self.words(programs.run("bin/huddle-ray", **environment))
        assert words[:2] == ["start", f"--address=127.0.0.1:{port}"]
        assert "--head" not in words
        assert not [word for word in words if word.startswith(("--port=", "--dashboard-port=", "--ray-client"))]

    def test_a_worker_without_head_gives_up_at_its_deadline(self, programs: Programs) -> None:
        programs.add("sleep", "true")
        environment = ray_environment(HEAD, HUDDLE_ROLE="worker", RAY_HEAD_IP="127.0.0.1", RAY_GCS_PORT="1")
        done = programs.run("bin/huddle-ray", **environment)
        assert done.returncode == 1
        assert "the head 127.0.0.1:1 did not answer for 600 s" in done.stderr

    def test_an_address_that_no_interface_has(self, programs: Programs) -> None:
        done = programs.run("bin/huddle-ray", **ray_environment(WORKER))
        assert done.returncode == 1
        assert "no interface of this machine has the address 10.0.0.5" in done.stderr

    def test_an_unknown_role(self, programs: Programs) -> None:
        done = programs.run("bin/huddle-ray", **ray_environment(HEAD, HUDDLE_ROLE="boss"))
        assert done.returncode == 2
        assert "HUDDLE_ROLE is 'boss'; allowed: head, worker" in done.stderr


def test_a_second_ray_on_the_machine_is_refused(programs: Programs) -> None:
    programs.add("pgrep", "exit 1")
    assert programs.run("bin/huddle-ray-guard").returncode == 0
    programs.add("pgrep", 'printf "17 gcs_server\\n18 raylet\\n"')
    done = programs.run("bin/huddle-ray-guard")
    assert done.returncode == 1
    assert "another Ray runs on this machine; stop it first (ray stop): 17 gcs_server, 18 raylet" in done.stderr
